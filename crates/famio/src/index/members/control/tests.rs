use super::*;

#[test]
fn a_file_whose_name_is_gone_or_another_files_is_known() {
    let file = for_test();
    let control = file.again();
    assert!(control.has_name());
    std::fs::remove_file(file.path()).unwrap();
    assert!(!control.has_name());
    let new = file.again();
    control.remove_name(); // removes only its own name
    assert!(new.has_name() && !control.has_name());
    new.remove_name();
    assert!(!new.has_name());
}

#[test]
fn it_goes_once_nobody_is_there() {
    let file = for_test();
    let (first, second) = (file.again(), file.again());
    assert!(first.lock_owner_lock(Lock::Exclusive, false).unwrap());
    second.remove_if_unused();
    assert!(first.has_name());
    first.unlock_owner_lock();
    second.remove_if_unused();
    assert!(!first.has_name());
}
