//! Lines of a harness's output, each with a bound. Cancelling a read loses nothing.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};

/// One line without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// What was kept, at most the bound; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// Bytes of this line beyond the bound, read and dropped.
    pub dropped: usize,
}

/// Reads lines of at most `bound` bytes; what is longer is cut, and the reader goes on with the next line.
#[derive(Debug)]
pub struct Lines<R> {
    reader: BufReader<R>,
    bound: usize,
    kept: Vec<u8>,
    dropped: usize,
}

// === impl Lines ===

impl<R: AsyncRead + Unpin> Lines<R> {
    pub fn new(reader: R, bound: usize) -> Self {
        Self { reader: BufReader::new(reader), bound, kept: Vec::new(), dropped: 0 }
    }

    /// The next line, or what there is of it at the end of the stream; then `None`.
    pub async fn next(&mut self) -> io::Result<Option<Line>> {
        loop {
            let available = self.reader.fill_buf().await?;
            if available.is_empty() {
                let rest = self.kept.len() + self.dropped > 0;
                return Ok(rest.then(|| self.take()));
            }
            let end = available.iter().position(|&byte| byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            let room = part.len().min(self.bound - self.kept.len());
            self.kept.extend_from_slice(&part[..room]);
            self.dropped += part.len() - room;
            let used = part.len() + usize::from(end.is_some());
            self.reader.consume(used);
            if end.is_some() {
                return Ok(Some(self.take()));
            }
        }
    }

    fn take(&mut self) -> Line {
        let text = match String::from_utf8(std::mem::take(&mut self.kept)) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        Line { text, dropped: std::mem::take(&mut self.dropped) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(given: &[u8], bound: usize) -> Vec<(String, usize)> {
        let mut lines = Lines::new(given, bound);
        let mut read = Vec::new();
        while let Some(line) = lines.next().await.unwrap() {
            read.push((line.text, line.dropped));
        }
        read
    }

    #[tokio::test]
    async fn lines_are_cut_at_the_bound_and_the_next_one_is_whole() {
        let read = all(b"abc\nabcdefgh\n\nrest", 4).await;
        let expected = [("abc", 0), ("abcd", 4), ("", 0), ("rest", 0)];
        assert_eq!(read, expected.map(|(text, dropped)| (text.to_owned(), dropped)));
    }

    #[tokio::test]
    async fn what_is_no_utf8_is_still_a_line() {
        assert_eq!(all(b"a\xffb\n", 9).await, [("a\u{fffd}b".to_owned(), 0)]);
    }
}
