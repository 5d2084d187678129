//! A persistent queue: messages of any length in a ring in a file, with one producer and one consumer. After a crash, all puts and
//! takes between two SYNCs have happened, or none: no message is torn, lost, or taken twice.
//!
//! `queue FILE put TEXT | take | work N`

use famio::{AtomicFile, Region, Result};
use std::path::Path;

/// Size of the ring.
const RING: usize = 1 << 20;
/// Offset of the ring in the file: after head and tail, which count all bytes ever put and ever taken.
const FIRST: usize = 4096;

struct Queue {
    file: AtomicFile,
    region: Region,
}

impl Queue {
    fn open(path: &Path) -> Result<Self> {
        let file = AtomicFile::options().create(true).open(path)?;
        if file.is_empty() {
            file.set_len((FIRST + RING) as u64)?;
        }
        let region = file.map(..)?;
        Ok(Self { file, region })
    }

    fn counter(&self, at: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        self.region.read(at, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn set_counter(&self, at: usize, value: u64) -> Result<()> {
        self.region.write(at, &value.to_le_bytes())
    }

    /// Bytes from number `from` on, around the end of the ring.
    fn read(&self, from: u64, bytes: &mut [u8]) -> Result<()> {
        let at = from as usize % RING;
        let (first, rest) = bytes.split_at_mut(bytes.len().min(RING - at));
        self.region.read(FIRST + at, first)?;
        self.region.read(FIRST, rest)
    }

    fn write(&self, from: u64, bytes: &[u8]) -> Result<()> {
        let at = from as usize % RING;
        let (first, rest) = bytes.split_at(bytes.len().min(RING - at));
        self.region.write(FIRST + at, first)?;
        self.region.write(FIRST, rest)
    }

    /// False: there is no room.
    fn put(&self, message: &[u8]) -> Result<bool> {
        let (head, tail) = (self.counter(0)?, self.counter(8)?);
        if (head - tail) as usize + 4 + message.len() > RING {
            return Ok(false);
        }
        self.write(head, &(message.len() as u32).to_le_bytes())?;
        self.write(head + 4, message)?;
        self.set_counter(0, head + 4 + message.len() as u64)?;
        Ok(true)
    }

    fn take(&self) -> Result<Option<Vec<u8>>> {
        let (head, tail) = (self.counter(0)?, self.counter(8)?);
        if head == tail {
            return Ok(None);
        }
        let mut length = [0; 4];
        self.read(tail, &mut length)?;
        let mut message = vec![0; u32::from_le_bytes(length) as usize];
        self.read(tail + 4, &mut message)?;
        self.set_counter(8, tail + 4 + message.len() as u64)?;
        Ok(Some(message))
    }

    fn close(self) -> Result<()> {
        self.region.unmap()?;
        self.file.close()
    }
}

/// Repeatedly puts a message and takes one, and SYNCs both together: there are always three. Messages are numbered.
fn work(queue: &Queue, count: u64) -> Result<()> {
    let text = |number: u64| format!("{number} {}", "x".repeat((number * 37 % 500) as usize));
    let number = |message: &[u8]| -> u64 {
        let text = String::from_utf8_lossy(message);
        text.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a message with a number")
    };
    let mut waiting = Vec::new();
    // What was left: in order, and three messages or none.
    while let Some(message) = queue.take()? {
        let number = number(&message);
        assert_eq!(String::from_utf8_lossy(&message), text(number), "a message is torn");
        waiting.push(number);
    }
    assert!(waiting.len() == 3 || waiting.is_empty(), "{waiting:?}");
    assert!(waiting.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{waiting:?}");
    println!("{}", waiting.first().copied().unwrap_or(0));
    let first = waiting.first().copied().unwrap_or(0);
    for number in first..first + 3 {
        assert!(queue.put(text(number).as_bytes())?);
    }
    queue.file.sync()?;
    for round in 1..=count {
        assert!(queue.put(text(first + 2 + round).as_bytes())?);
        let taken = queue.take()?.expect("there are four");
        assert_eq!(number(&taken), first + round - 1);
        queue.file.sync()?;
        println!("{}", first + round);
    }
    Ok(())
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().collect();
    let args: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    match args[..] {
        [file, "put", text] => {
            let queue = Queue::open(Path::new(file))?;
            let put = queue.put(text.as_bytes())?;
            queue.close()?;
            assert!(put, "the queue is full");
        }
        [file, "take"] => {
            let queue = Queue::open(Path::new(file))?;
            if let Some(message) = queue.take()? {
                println!("{}", String::from_utf8_lossy(&message));
            }
            queue.close()?;
        }
        [file, "work", count] => {
            let queue = Queue::open(Path::new(file))?;
            work(&queue, count.parse().expect("a number"))?;
            queue.close()?;
        }
        _ => {
            eprintln!("usage: queue FILE put TEXT | take | work N");
            std::process::exit(2);
        }
    }
    Ok(())
}
