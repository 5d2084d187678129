use super::*;

fn leads(pairs: &Pairs) -> Leading<'_> {
    match pairs.arrive(|| {}) {
        Arrival::Leads(leading) => leading,
        Arrival::Joins(_) | Arrival::Alone => panic!("nobody leads"),
    }
}

fn joins(pairs: &Pairs, look: impl FnOnce(&Taken)) -> Joined<'_> {
    let Arrival::Joins(number) = pairs.arrive(|| {}) else { panic!("a pair is open") };
    pairs.join(number, look).expect("it is still open")
}

#[test]
fn a_pair_without_a_partner_ends() {
    let pairs = Pairs::default();
    for _ in 0..3 {
        let leading = leads(&pairs);
        let led = leading.open([1, 2].into_iter());
        assert_eq!(led.close(), Partner::None);
        led.end();
    }
}

#[test]
fn a_partner_learns_the_leaders_blocks_and_waits_for_the_end() {
    let pairs = Pairs::default();
    for waits in [false, true] {
        let leading = leads(&pairs);
        let led = leading.open([7, 1 << 40].into_iter());
        std::thread::scope(|scope| {
            let partner = scope.spawn(|| {
                let joined = joins(&pairs, |taken| {
                    assert!(taken.has(7) && taken.has(1 << 40) && !taken.has(8));
                });
                if waits {
                    joined.wait_for_leader().unwrap();
                }
                joined.end()
            });
            // Until somebody has joined.
            while pairs.state.value.load(Ordering::Acquire) & MARK == 0 {
                std::thread::yield_now();
            }
            assert_eq!(led.close(), Partner::Done);
            led.end();
            drop(leading);
            assert!(partner.join().unwrap().unwrap());
        });
    }
}

#[test]
fn only_an_open_pair_is_joined_and_by_one() {
    let pairs = Pairs::default();
    let leading = leads(&pairs);
    let mut asked = 0;
    assert!(matches!(pairs.arrive(|| asked += 1), Arrival::Alone), "the pair is not open yet");
    assert_eq!(asked, 1);
    let led = leading.open([1].into_iter());
    let Arrival::Joins(number) = pairs.arrive(|| {}) else { panic!("it is open") };
    let joined = pairs.join(number, |_| {}).expect("it is open");
    assert!(pairs.join(number, |_| {}).is_none(), "it has a partner");
    assert!(matches!(pairs.arrive(|| {}), Arrival::Alone));
    drop(joined);
    assert_eq!(led.close(), Partner::Failed, "dropped before its end");

    let pairs = Pairs::default();
    let leading = leads(&pairs);
    let led = leading.open([1].into_iter());
    let Arrival::Joins(number) = pairs.arrive(|| {}) else { panic!("it is open") };
    assert_eq!(led.close(), Partner::None);
    assert!(pairs.join(number, |_| {}).is_none(), "it was closed");
}

#[test]
fn a_partner_learns_that_its_leader_failed() {
    let pairs = Pairs::default();
    let leading = leads(&pairs);
    let led = leading.open([1].into_iter());
    let joined = std::thread::scope(|scope| {
        let partner = scope.spawn(|| joins(&pairs, |_| {}).end().unwrap());
        while pairs.state.value.load(Ordering::Acquire) & MARK == 0 {
            std::thread::yield_now();
        }
        assert_eq!(led.close(), Partner::Done);
        drop((led, leading)); // fails only after its partner has ended
        partner.join().unwrap()
    });
    assert!(!joined);
}

#[test]
fn numbers_go_round() {
    let pairs = Pairs::default();
    for word in [&pairs.leaders, &pairs.partners] {
        word.value.store(FIRST, Ordering::Relaxed);
    }
    pairs.taken.number.store(u32::MAX - 1, Ordering::Relaxed);
    let leading = leads(&pairs);
    let led = leading.open([1].into_iter());
    let [leaders, partners] = [&pairs.leaders, &pairs.partners].map(|word| word.value.load(Ordering::Relaxed));
    assert_eq!((led.number, leaders, partners), (FIRST, 0, 0));
    led.end();
}

/// The pair does not fail because of signals that come while the partner sleeps.
#[test]
fn signals_do_not_end_the_wait() {
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    extern "C" fn count(_: libc::c_int) {
        HANDLED.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: a handler that only counts, of a signal for which no other test has one.
    unsafe { libc::signal(libc::SIGWINCH, count as *const () as libc::sighandler_t) };
    let pairs = Pairs::default();
    let leading = leads(&pairs);
    let led = leading.open([1].into_iter());
    std::thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let pairs = &pairs;
        let partner = scope.spawn(move || {
            let joined = joins(pairs, |_| {});
            // SAFETY: this thread.
            tell.send(unsafe { libc::pthread_self() } as u64).unwrap();
            joined.wait_for_leader().unwrap();
            joined.end().unwrap()
        });
        let thread = told.recv().unwrap();
        for handled in 0..2 * LONG.rounds {
            // Until it is asleep again: a signal before that interrupts nothing.
            let is_asleep =
                || HANDLED.load(Ordering::SeqCst) >= handled && pairs.leaders.sleepers.load(Ordering::SeqCst) != 0;
            while !is_asleep() {
                assert!(!partner.is_finished(), "signal {handled} has ended its wait");
                std::thread::yield_now();
            }
            // SAFETY: it lives until the leader is done.
            unsafe { libc::pthread_kill(thread as libc::pthread_t, libc::SIGWINCH) };
        }
        assert_eq!(led.close(), Partner::Done);
        led.end();
        drop(leading);
        assert!(partner.join().unwrap());
    });
}
