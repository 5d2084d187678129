//! What a server does next, and what its files must hold after that.

use super::personality::{PIECE, Personality};
use std::collections::VecDeque;

/// One operation, on a file by its number in the model.
#[derive(Clone, Debug)]
pub enum Step {
    /// Makes a file, writes it, and syncs it or not.
    Make {
        file: u64,
        synced: bool,
    },
    /// Opens a file, appends a piece, and syncs it or not.
    Append {
        file: u64,
        synced: bool,
    },
    /// Opens a file, reads all of it, appends a piece, and syncs it.
    ReadAndAppend {
        file: u64,
    },
    /// Overwrites one piece, and syncs it.
    Overwrite {
        file: u64,
        piece: u64,
    },
    Read {
        file: u64,
    },
    ReadPiece {
        file: u64,
        piece: u64,
    },
    Look {
        file: u64,
    },
    /// The file is no longer in the model.
    Remove {
        file: u64,
    },
}

/// The log of a server that has one.
pub const LOG: u64 = u64::MAX;

/// A file: the stamp of each of its pieces.
#[derive(Clone, Debug)]
pub struct File {
    pub number: u64,
    pub pieces: Vec<u64>,
}

/// What the files must hold.
pub struct Model {
    pub files: Vec<File>,
    /// Of the next file.
    next: u64,
}

impl Model {
    /// As they are at first.
    pub fn new(personality: Personality) -> Self {
        let pieces = personality.pieces();
        let file = |number: u64| File { number, pieces: (0..pieces).map(|at| 1 + number * pieces + at).collect() };
        let mut files: Vec<_> = (0..personality.files()).map(file).collect();
        if matches!(personality, Personality::WebServer | Personality::WebProxy) {
            files.push(File { number: LOG, pieces: Vec::new() });
        }
        Self { files, next: personality.files() }
    }

    /// The file of this number.
    pub fn file(&self, number: u64) -> Option<&File> {
        // The newest is last, but for a log.
        self.files.iter().rev().find(|file| file.number == number)
    }
}

/// The steps, one after another: the same in each plan of a personality and worker.
pub struct Planner {
    personality: Personality,
    pub model: Model,
    random: fastrand::Rng,
    /// What comes next.
    kinds: VecDeque<Kind>,
    /// Of the next piece that is written.
    stamp: u64,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Make { synced: bool },
    Append { synced: bool },
    AppendLog,
    ReadAndAppend,
    Overwrite,
    Read,
    ReadPiece,
    Look,
    Remove,
}

impl Planner {
    pub fn new(personality: Personality, worker: u32) -> Self {
        let random = fastrand::Rng::with_seed(u64::from(worker) + 1);
        Self { personality, model: Model::new(personality), random, kinds: VecDeque::new(), stamp: 1 << 40 }
    }

    /// One turn of the server's loop.
    fn turn(&mut self) -> Vec<Kind> {
        use Kind::*;
        let plain = |kind: fn() -> Kind, count| (0..count).map(move |_| kind());
        match self.personality {
            Personality::FileServer => {
                vec![Make { synced: false }, Append { synced: false }, Read, Remove, Look]
            }
            Personality::WebServer => plain(|| Read, 10).chain([AppendLog]).collect(),
            Personality::WebProxy => {
                [Remove, Make { synced: false }].into_iter().chain(plain(|| Read, 5)).chain([AppendLog]).collect()
            }
            Personality::VarMail => vec![Remove, Make { synced: true }, ReadAndAppend, Read],
            Personality::Ffsb => {
                let all = [Read, ReadPiece, Append { synced: false }, Overwrite, Make { synced: true }, Remove];
                vec![all[self.random.usize(..all.len())]]
            }
        }
    }

    /// The next step, which the model has then taken.
    pub fn next(&mut self) -> Step {
        if self.kinds.is_empty() {
            let turn = self.turn();
            self.kinds.extend(turn);
        }
        match self.kinds.pop_front() {
            // By chance none may be left to remove.
            Some(Kind::Remove) if self.model.files.len() <= 10 => self.make(false),
            Some(Kind::Make { synced }) => self.make(synced),
            Some(kind) => self.on_one(kind),
            None => self.make(false),
        }
    }

    fn make(&mut self, synced: bool) -> Step {
        let number = self.model.next;
        self.model.next += 1;
        let pieces = (0..self.personality.pieces()).map(|_| self.new_stamp()).collect();
        self.model.files.push(File { number, pieces });
        Step::Make { file: number, synced }
    }

    fn new_stamp(&mut self) -> u64 {
        self.stamp += 1;
        self.stamp
    }

    /// A step on a file that is there, each as likely as any other.
    fn on_one(&mut self, kind: Kind) -> Step {
        let files = &self.model.files;
        let at = match kind {
            Kind::AppendLog => files.iter().position(|file| file.number == LOG).unwrap_or(0),
            _ => loop {
                let at = self.random.usize(..files.len());
                if files[at].number != LOG {
                    break at;
                }
            },
        };
        let stamp = self.new_stamp();
        let piece = self.random.usize(..self.model.files[at].pieces.len().max(1));
        let File { number: file, pieces } = &mut self.model.files[at];
        let (file, piece_number) = (*file, piece as u64);
        match kind {
            Kind::Append { synced } => {
                pieces.push(stamp);
                Step::Append { file, synced }
            }
            Kind::AppendLog => {
                pieces.push(stamp);
                Step::Append { file, synced: false }
            }
            Kind::ReadAndAppend => {
                pieces.push(stamp);
                Step::ReadAndAppend { file }
            }
            Kind::Overwrite => {
                pieces[piece] = stamp;
                Step::Overwrite { file, piece: piece_number }
            }
            Kind::ReadPiece => Step::ReadPiece { file, piece: piece_number },
            Kind::Look => Step::Look { file },
            Kind::Remove => {
                self.model.files.swap_remove(at);
                Step::Remove { file }
            }
            Kind::Read | Kind::Make { .. } => Step::Read { file },
        }
    }
}

/// Bytes of a file.
pub fn size(file: &File) -> u64 {
    file.pieces.len() as u64 * PIECE
}
