//! A set-user-id program linked with libfamio accepts no settings from its caller. Needs root, for other users.

mod common;

use common::{Linked, build, command, succeed};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const OWNER: u32 = 1235;
const CALLER: u32 = 1234;

#[test]
fn a_set_user_id_program_takes_no_settings_of_its_callers() {
    // SAFETY: a question.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("SKIPPED: needs root, for other users");
        return;
    }
    // Accessible to everybody; /dev/shm may be mounted without set-user-id.
    let folder = Path::new("/var/tmp").join(format!("famio-secure-{}", std::process::id()));
    std::fs::create_dir(&folder).unwrap();
    let program = folder.join("program");
    std::fs::copy(build("crates/famio-capi/tests/programs/secure.c", Linked::Static), &program).unwrap();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    for path in [&folder, &program] {
        chown(path, Some(OWNER), Some(OWNER)).unwrap();
        mode(path, 0o755);
    }
    let run = |user: u32, variable: (&str, &str)| {
        let mut command: Command = command(&program);
        succeed(command.current_dir(&folder).uid(user).gid(user).env(variable.0, variable.1))
    };
    let (durability, pool) = (("FAMIO_DURABILITY", "maybe"), ("FAMIO_POOL", "/dev/shm/no-such-pool"));
    // Run by its owner, the settings count.
    assert!(run(OWNER, durability).contains("FAMIO_DURABILITY=maybe is not understood"));
    mode(&program, 0o4755);
    let said = run(CALLER, durability);
    if said.starts_with("user 1234") {
        eprintln!("SKIPPED: set-user-id programs do not work in {}", folder.display());
    } else {
        for variable in [durability, pool] {
            let said = run(CALLER, variable);
            assert_eq!(said, "user 1235 for 1234: written\n", "{variable:?}");
        }
    }
    let _ = Command::new("rm").arg("-rf").arg(&folder).status();
}
