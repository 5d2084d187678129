//! Moves money between the accounts of two files, one transaction per transfer. Whenever it is killed, and however
//! many copies of it run at a time, no money is lost or created.
//!
//! `bank DIR transfer N` makes N transfers, and reports each as durable; `bank DIR check` adds up all accounts.

use famio::{AtomicFile, Error, Tx};
use std::io::Write;

const ACCOUNTS: u64 = 100;
const MONEY: u64 = 1000;

/// In each file, after its accounts: the number of transfers.
const COUNT: u64 = ACCOUNTS;

fn get(tx: &mut Tx<'_>, file: &AtomicFile, number: u64) -> Result<u64, Error> {
    let mut word = [0; 8];
    tx.on(file).read_at(&mut word, number * 8)?;
    Ok(u64::from_le_bytes(word))
}

fn set(tx: &mut Tx<'_>, file: &AtomicFile, number: u64, value: u64) -> Result<(), Error> {
    tx.on(file).write_at(&value.to_le_bytes(), number * 8)
}

/// Repeats a transaction while others change what it has read.
fn repeat<T>(attempt: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    loop {
        match attempt() {
            Err(e) if e.errno() == libc::EAGAIN => {}
            done => return done,
        }
    }
}

/// Both files get their money in one transaction, too, unless another process was first: then a read finds it, or the
/// commit fails.
fn try_to_begin(giro: &AtomicFile, savings: &AtomicFile) -> Result<(), Error> {
    let mut tx = giro.transaction()?;
    tx.check()?;
    tx.join(savings)?;
    if tx.on(giro).read_at(&mut [0], 0)? > 0 {
        return Ok(());
    }
    for file in [giro, savings] {
        for number in 0..ACCOUNTS {
            set(&mut tx, file, number, MONEY)?;
        }
        set(&mut tx, file, COUNT, 0)?;
    }
    tx.commit()
}

fn try_to_transfer(giro: &AtomicFile, savings: &AtomicFile, random: u64) -> Result<u64, Error> {
    let (from, to) = if random.is_multiple_of(2) { (giro, savings) } else { (savings, giro) };
    let (payer, payee) = (random / 2 % ACCOUNTS, random / 1000 % ACCOUNTS);
    let mut tx = giro.transaction()?;
    tx.check()?;
    tx.join(savings)?;
    let there = get(&mut tx, from, payer)?;
    let amount = there.min(random % 50);
    set(&mut tx, from, payer, there - amount)?;
    let there = get(&mut tx, to, payee)?;
    set(&mut tx, to, payee, there + amount)?;
    let count = get(&mut tx, giro, COUNT)? + 1;
    for file in [giro, savings] {
        set(&mut tx, file, COUNT, count)?;
    }
    tx.commit()?;
    Ok(count)
}

fn check(giro: &AtomicFile, savings: &AtomicFile) -> Result<(), String> {
    let sum_of = |file: &AtomicFile| -> Result<(u64, u64), Error> {
        let mut words = vec![0; (COUNT as usize + 1) * 8];
        let read = file.read_at(&mut words, 0)?;
        let mut words: Vec<u64> =
            words[..read].chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default())).collect();
        let count = words.pop().unwrap_or(0);
        Ok((words.iter().sum(), count))
    };
    let ((one, count), (two, other)) =
        (sum_of(giro).map_err(|e| e.to_string())?, sum_of(savings).map_err(|e| e.to_string())?);
    if count != other || ![0, 2 * ACCOUNTS * MONEY].contains(&(one + two)) {
        return Err(format!("DAMAGED: {one} and {two}, after {count} and {other} transfers"));
    }
    println!("{count}");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, what, rest @ ..] = &arguments[..] else {
        return Err("usage: bank DIR transfer N | bank DIR check".into());
    };
    let open = |name: &str| AtomicFile::options().create(true).open(format!("{folder}/{name}"));
    let (giro, savings) = (open("giro")?, open("savings")?);
    if what == "check" {
        check(&giro, &savings)?;
    } else {
        repeat(|| try_to_begin(&giro, &savings))?;
        let mut random = 88_172_645_463_325_252_u64;
        for _ in 0..rest.first().map_or(Ok(1000), |count| count.parse())? {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let count = repeat(|| try_to_transfer(&giro, &savings, random >> 8))?;
            writeln!(std::io::stdout(), "{count}")?;
        }
    }
    giro.close()?;
    savings.close()?;
    Ok(())
}
