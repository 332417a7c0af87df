//! Server-sent events, read as they pass by: where each ends, and what its data is. Pure; nothing is waited for and
//! nothing is changed.

/// The events that are read here are a few hundred bytes. A longer one carries content, and is passed over.
const EVENT_BYTES_MAX: usize = 256 * 1024;

/// Takes the bytes of a stream in whatever pieces they come.
#[derive(Debug)]
pub(super) struct SseReader {
    /// Of the line that has not ended.
    line: Vec<u8>,
    /// Of the event that has not ended, its data lines joined by line feeds.
    data: Vec<u8>,
    too_long: bool,
    /// A line feed after this would belong to the line that a carriage return has ended.
    after_return: bool,
    between: bool,
}

// === impl SseReader ===

impl SseReader {
    pub(super) fn new() -> Self {
        Self { line: Vec::new(), data: Vec::new(), too_long: false, after_return: false, between: true }
    }

    /// Hands the data of each event that these bytes complete to `event`.
    pub(super) fn push(&mut self, bytes: &[u8], mut event: impl FnMut(&[u8])) {
        for &byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                b'\n' | b'\r' => self.end_line(&mut event),
                _ => self.take(byte),
            }
        }
    }

    /// Whether something put in now would stand between two events, and not in one.
    pub(super) fn between_events(&self) -> bool {
        self.between && !self.after_return
    }

    fn take(&mut self, byte: u8) {
        self.between = false;
        if self.line.len() + self.data.len() < EVENT_BYTES_MAX {
            self.line.push(byte);
        } else {
            self.too_long = true;
        }
    }

    fn end_line(&mut self, event: &mut impl FnMut(&[u8])) {
        if self.line.is_empty() {
            if !self.data.is_empty() && !self.too_long {
                event(&self.data);
            }
            *self = Self { after_return: self.after_return, ..Self::new() };
            return;
        }
        if let Some(data) = self.line.strip_prefix(b"data:") {
            if !self.data.is_empty() {
                self.data.push(b'\n');
            }
            self.data.extend(data.strip_prefix(b" ").unwrap_or(data));
        }
        self.line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> (Vec<String>, bool) {
        let mut reader = SseReader::new();
        let mut events = Vec::new();
        for piece in pieces {
            reader.push(piece, |data| events.push(String::from_utf8_lossy(data).into_owned()));
        }
        (events, reader.between_events())
    }

    const STREAM: &str =
        ": hello\n\nevent: a\ndata: {\"one\":1}\n\ndata:two\r\ndata: lines\r\n\r\ndata: x\rid: 7\r\r";

    #[test]
    fn events_are_read_with_every_line_ending() {
        assert_eq!(read(&[STREAM.as_bytes()]).0, ["{\"one\":1}", "two\nlines", "x"]);
    }

    #[test]
    fn it_does_not_matter_where_the_pieces_are_cut() {
        let whole = read(&[STREAM.as_bytes()]).0;
        for at in 0..=STREAM.len() {
            let (head, tail) = STREAM.as_bytes().split_at(at);
            assert_eq!(read(&[head, tail]).0, whole, "cut at {at}");
        }
        let bytes: Vec<&[u8]> = STREAM.as_bytes().chunks(1).collect();
        assert_eq!(read(&bytes).0, whole);
    }

    #[test]
    fn only_after_an_empty_line_it_is_between_events() {
        assert!(read(&[]).1, "before the first");
        for (text, between) in [
            ("data: a\n\n", true),
            ("data: a\r\n\r\n", true),
            ("data: a\n", false),
            ("data: a\n\nd", false),
            ("data: a\r\n\r", false),
            (": comment\n", false),
            ("event: a\n\ndata: b\n\n", true),
        ] {
            assert_eq!(read(&[text.as_bytes()]).1, between, "{text:?}");
        }
    }

    #[test]
    fn an_endless_event_is_passed_over_in_bounded_memory() {
        let mut reader = SseReader::new();
        let mut events = Vec::new();
        let mut push = |bytes: &[u8]| reader.push(bytes, |data| events.push(data.to_vec()));
        push(b"data: ");
        for _ in 0..40 {
            push(&[b'x'; 64 * 1024]);
        }
        push(b"\ndata: more\n\ndata: next\n\n");
        assert_eq!(events, [b"next"]);
        assert!(reader.line.capacity() + reader.data.capacity() <= 4 * EVENT_BYTES_MAX);
    }
}
