//! The control socket between executor and shim: one byte per word, descriptors beside it.
//!
//! Both ends are this module, so the words cannot drift. It is a stream socket pair; a word that carries descriptors
//! is never merged with its neighbours by the kernel.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// At most this many descriptors beside one word: the harness's input and the two locks, with one to spare.
pub const DESCRIPTORS_MAX: usize = 4;

/// What the executor says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The first word: carries the harness's input, then the locks.
    Start,
    /// The executor is alive.
    Beat,
    /// Stop every process inside where it stands.
    Freeze,
    /// Let them go on.
    Thaw,
}

/// What the shim says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// The harness runs. Carries a pidfd of the shim: it becomes readable when everything inside has ended.
    Started,
    /// Everything inside stands still until told to thaw: by order, or since the beat was missing for too long.
    Frozen,
    /// It goes on, by order.
    Thawed,
}

/// A word of one byte.
pub trait Word: Sized {
    fn byte(self) -> u8;
    fn from_byte(byte: u8) -> Option<Self>;
}

pub fn send(socket: impl AsFd, word: impl Word, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one word of the control socket"));
    }
    sendmsg(socket, &[IoSlice::new(&[word.byte()])], &mut beside, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next word, `None` when the other end is closed.
pub fn receive<W: Word>(socket: impl AsFd) -> io::Result<Option<(W, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let read = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut beside, RecvFlags::CMSG_CLOEXEC)?;
    if read.bytes == 0 {
        return Ok(None);
    }
    let word = W::from_byte(byte[0])
        .ok_or_else(|| io::Error::other("an unknown word came over the control socket"))?;
    let mut descriptors = Vec::new();
    for message in beside.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok(Some((word, descriptors)))
}

// === impl Order ===

impl Word for Order {
    fn byte(self) -> u8 {
        match self {
            Self::Start => b's',
            Self::Beat => b'b',
            Self::Freeze => b'f',
            Self::Thaw => b't',
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Start, Self::Beat, Self::Freeze, Self::Thaw].into_iter().find(|word| word.byte() == byte)
    }
}

// === impl Report ===

impl Word for Report {
    fn byte(self) -> u8 {
        match self {
            Self::Started => b'S',
            Self::Frozen => b'F',
            Self::Thawed => b'T',
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Started, Self::Frozen, Self::Thawed].into_iter().find(|word| word.byte() == byte)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn words_arrive_one_by_one_with_their_descriptors() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (reader, mut writer) = io::pipe().unwrap();
        send(&ours, Order::Start, &[reader.as_fd()]).unwrap();
        send(&ours, Order::Beat, &[]).unwrap();
        drop((ours, reader));

        let (word, mut descriptors) = receive::<Order>(&theirs).unwrap().unwrap();
        assert_eq!((word, descriptors.len()), (Order::Start, 1));
        assert!(
            rustix::io::fcntl_getfd(&descriptors[0]).unwrap().contains(rustix::io::FdFlags::CLOEXEC),
            "a received descriptor must not reach the harness"
        );
        writer.write_all(b"through").unwrap();
        drop(writer);
        let mut text = String::new();
        File::from(descriptors.remove(0)).read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");

        assert_eq!(receive::<Order>(&theirs).unwrap().unwrap().0, Order::Beat);
        assert!(receive::<Order>(&theirs).unwrap().is_none(), "closed");
    }

    #[test]
    fn the_other_sides_words_are_not_understood() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        send(&ours, Report::Frozen, &[]).unwrap();
        receive::<Order>(&theirs).unwrap_err();
    }
}
