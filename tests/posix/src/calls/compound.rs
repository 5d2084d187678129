//! Steps of several calls: through a pipe, by another name, by a stream.

use super::side::{Seen, Side, bytes, result};

impl Side {
    /// From the file into a pipe, and from a pipe into the file, by `splice`; returns the bytes read and how many
    /// were written. Spliced bytes are read out in between: a plain file's pages would change in the pipe.
    pub(super) fn through_pipes(&self, from: i32, to: i32, at: i64, len: usize, tag: u64) -> Seen {
        let (mut at, len) = (at, len.min(60_000));
        let (mut buffer, mut ends) = (vec![0xee; len], [0; 2]);
        // SAFETY: the pipe's descriptors are ours; buffers are as long as said.
        unsafe {
            if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) != 0 {
                return (result(-1), Vec::new(), Vec::new());
            }
            let null = std::ptr::null_mut();
            let moved = result(libc::splice(from, &mut at, ends[1], null, len, 0) as i64);
            let mut read = 0;
            while read < moved {
                let rest = &mut buffer[read as usize..];
                read += result(libc::read(ends[0], rest.as_mut_ptr().cast(), rest.len()) as i64).max(1);
            }
            let sent = result(libc::write(ends[1], bytes(len, tag).as_ptr().cast(), len) as i64);
            let back = result(libc::splice(ends[0], null, to, null, len, 0) as i64);
            libc::close(ends[0]);
            libc::close(ends[1]);
            (moved, buffer, vec![at, sent, back])
        }
    }

    pub(super) fn by_another_name(&self, at: i64, len: usize, tag: u64) -> Seen {
        let name = &self.link;
        let mut buffer = vec![0xee; len];
        // SAFETY: paths end with a zero; the buffers are as long as said.
        unsafe {
            let linked = result(libc::link(self.path()[0].as_ptr(), name.as_ptr()));
            if linked < 0 {
                return (linked, Vec::new(), Vec::new());
            }
            let fd = libc::open(name.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
            let wrote = result(libc::pwrite(fd, bytes(len, tag).as_ptr().cast(), len, at) as i64);
            let read = result(libc::pread(fd, buffer.as_mut_ptr().cast(), len, at) as i64);
            let closed = result(libc::close(fd));
            let gone = result(libc::unlink(name.as_ptr()));
            (linked, buffer, vec![wrote, read, closed, gone])
        }
    }

    pub(super) fn stream(&self, mode: u8, at: i64, len: usize, sync: bool, tag: u64) -> Seen {
        let mode = [c"r", c"r+", c"w+", c"a", c"a+"][usize::from(mode)];
        let (data, mut buffer) = (bytes(len, tag), vec![0xee; len]);
        // SAFETY: the stream is used only if it was opened, and not after its close; buffers are as long as said.
        unsafe {
            let stream = libc::fopen(self.path()[0].as_ptr(), mode.as_ptr());
            if stream.is_null() {
                return (result(-1), Vec::new(), Vec::new());
            }
            let mut seen = vec![result(libc::fseek(stream, at, libc::SEEK_SET))];
            let half = len / 2;
            seen.push(libc::fwrite(data.as_ptr().cast(), 1, half, stream) as i64);
            seen.push(libc::fwrite(data[half..].as_ptr().cast(), 1, len - half, stream) as i64);
            seen.push(result(libc::fflush(stream)));
            if sync {
                seen.push(if self.twin { 0 } else { result(libc::fsync(libc::fileno(stream))) });
            }
            seen.push(result(libc::ftell(stream)));
            seen.push(result(libc::fseek(stream, at / 2, libc::SEEK_SET)));
            seen.push(libc::fread(buffer.as_mut_ptr().cast(), 1, len, stream) as i64);
            seen.push(result(libc::ftell(stream)));
            seen.push(libc::feof(stream).into());
            seen.push(libc::ferror(stream).into());
            (result(libc::fclose(stream)), buffer, seen)
        }
    }
}
