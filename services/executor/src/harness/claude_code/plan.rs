//! The agent's list of what it means to do, put together from its own tool calls.
//!
//! 2.1.197 keeps it with `TaskCreate`, `TaskUpdate` and `TaskList`; `TodoWrite`, which always carries the whole list,
//! exists but is switched off there. A call counts when it has succeeded.

use serde_json::Value;

use crate::harness::{PlanItem, PlanStatus};

/// More than a person would read. What is beyond is left out of the list, not of the agent's own.
const ITEMS_MAX: usize = 200;

#[derive(Debug, Default)]
pub(super) struct Plan {
    items: Vec<PlanItem>,
}

/// Whether a tool of this name can change the plan.
pub(super) fn concerns(tool: &str) -> bool {
    matches!(tool, "TodoWrite" | "TaskCreate" | "TaskUpdate" | "TaskList")
}

// === impl Plan ===

impl Plan {
    pub(super) fn new(items: Vec<PlanItem>) -> Self {
        Self { items }
    }

    pub(super) fn items(&self) -> &[PlanItem] {
        &self.items
    }

    /// Takes one successful call into the list; whether the list is now another.
    pub(super) fn apply(&mut self, tool: &str, input: &Value, result: &Value) -> bool {
        let before = self.items.clone();
        match tool {
            "TodoWrite" => self.replace(&input["todos"], "content"),
            "TaskList" => self.replace(&result["tasks"], "subject"),
            "TaskCreate" => {
                if let (Some(id), Some(text)) = (text_of(&result["task"]["id"]), text_of(&input["subject"])) {
                    self.put(PlanItem { id, text, status: PlanStatus::Pending });
                }
            }
            "TaskUpdate" if result["success"] != Value::Bool(false) => self.update(input),
            _ => {}
        }
        self.items != before
    }

    /// A whole list; where items have no ids, their places are the ids.
    fn replace(&mut self, list: &Value, text_field: &str) {
        let Some(list) = list.as_array() else { return };
        let item = |(place, item): (usize, &Value)| {
            Some(PlanItem {
                id: text_of(&item["id"]).unwrap_or_else(|| (place + 1).to_string()),
                text: text_of(&item[text_field])?,
                status: status_of(&item["status"]).unwrap_or(PlanStatus::Pending),
            })
        };
        self.items = list.iter().enumerate().take(ITEMS_MAX).filter_map(item).collect();
    }

    fn update(&mut self, input: &Value) {
        let Some(id) = text_of(&input["taskId"]) else { return };
        if input["status"] == "deleted" {
            self.items.retain(|item| item.id != id);
            return;
        }
        let known = self.items.iter().find(|item| item.id == id).cloned();
        // Unknown after a resume of a session whose plan was not handed on.
        let mut item =
            known.unwrap_or_else(|| PlanItem { text: format!("task {id}"), id, status: PlanStatus::Pending });
        if let Some(text) = text_of(&input["subject"]) {
            item.text = text;
        }
        if let Some(status) = status_of(&input["status"]) {
            item.status = status;
        }
        self.put(item);
    }

    fn put(&mut self, item: PlanItem) {
        if let Some(known) = self.items.iter_mut().find(|known| known.id == item.id) {
            *known = item;
        } else if self.items.len() < ITEMS_MAX {
            self.items.push(item);
        }
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn status_of(value: &Value) -> Option<PlanStatus> {
    match value.as_str()? {
        "pending" => Some(PlanStatus::Pending),
        "in_progress" => Some(PlanStatus::InProgress),
        "completed" => Some(PlanStatus::Completed),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(plan: &Plan) -> Vec<String> {
        plan.items().iter().map(|item| format!("{} {} {:?}", item.id, item.text, item.status)).collect()
    }

    fn created(id: &str) -> Value {
        json!({"task": {"id": id, "subject": "not read"}})
    }

    #[test]
    fn tasks_are_made_changed_and_removed() {
        let mut plan = Plan::default();
        assert!(plan.apply("TaskCreate", &json!({"subject": "first"}), &created("1")));
        assert!(plan.apply("TaskCreate", &json!({"subject": "second"}), &created("2")));
        assert!(plan.apply("TaskUpdate", &json!({"taskId": "1", "status": "in_progress"}), &Value::Null));
        assert!(plan.apply("TaskUpdate", &json!({"taskId": "2", "subject": "2nd"}), &Value::Null));
        assert_eq!(shown(&plan), ["1 first InProgress", "2 2nd Pending"]);
        assert!(plan.apply("TaskUpdate", &json!({"taskId": "1", "status": "deleted"}), &Value::Null));
        assert_eq!(shown(&plan), ["2 2nd Pending"]);
    }

    #[test]
    fn a_refused_or_empty_change_is_none() {
        let mut plan = Plan::default();
        let refused = json!({"success": false});
        assert!(!plan.apply("TaskUpdate", &json!({"taskId": "1", "status": "completed"}), &refused));
        assert!(!plan.apply("TaskUpdate", &json!({"taskId": "1", "status": "deleted"}), &Value::Null));
        assert!(!plan.apply("Bash", &json!({"todos": []}), &Value::Null));
    }

    #[test]
    fn a_resumed_session_goes_on_with_the_plan_it_was_handed() {
        let item = |id: &str| PlanItem { id: id.into(), text: "old".into(), status: PlanStatus::Pending };
        let mut plan = Plan::new(vec![item("1")]);
        plan.apply("TaskUpdate", &json!({"taskId": "1", "status": "completed"}), &Value::Null);
        plan.apply("TaskUpdate", &json!({"taskId": "7", "status": "in_progress"}), &Value::Null);
        assert_eq!(shown(&plan), ["1 old Completed", "7 task 7 InProgress"]);
        let listed = json!({"tasks": [{"id": "7", "subject": "seventh", "status": "in_progress"}]});
        assert!(plan.apply("TaskList", &json!({}), &listed));
        assert_eq!(shown(&plan), ["7 seventh InProgress"]);
    }

    #[test]
    fn a_whole_list_is_cut_at_its_bound() {
        let mut plan = Plan::default();
        let todos: Vec<Value> =
            (0..ITEMS_MAX + 5).map(|n| json!({"content": n.to_string(), "status": "pending"})).collect();
        plan.apply("TodoWrite", &json!({"todos": todos}), &Value::Null);
        plan.apply("TaskCreate", &json!({"subject": "one more"}), &created("x"));
        assert_eq!(plan.items().len(), ITEMS_MAX);
        assert_eq!(plan.items()[0].id, "1");
    }
}
