// Limits, users, roots, modes and names.
#include "host.h"

enum { USER = 61232, GROUP = 61300 };

static void limit_to(int resource, const rlim_t *choices, int count, const char *what, uint64_t *random)
{
	struct rlimit limit;
	getrlimit(resource, &limit);
	limit.rlim_cur = choices[below(random, count)];
	if (limit.rlim_cur > limit.rlim_max)
		limit.rlim_cur = limit.rlim_max;
	note(what, -1, CALL, setrlimit(resource, &limit), limit.rlim_cur);
}

void step_fsize(uint64_t *random)
{
	static const rlim_t SIZES[] = {0, 4096, 50000, 1 << 20, RLIM_INFINITY, RLIM_INFINITY};
	limit_to(RLIMIT_FSIZE, SIZES, 6, "setrlimit(RLIMIT_FSIZE)", random);
}

void step_as(uint64_t *random)
{
	static const rlim_t SIZES[] = {256 << 20, (rlim_t)1 << 30, RLIM_INFINITY};
	limit_to(RLIMIT_AS, SIZES, 3, "setrlimit(RLIMIT_AS)", random);
}

void step_chroot(uint64_t *random)
{
	(void)random;
	if (note("chroot(\".\")", -1, CALL, chroot("."), 0) == 0)
		board->jail = 1;
}

void step_setuid(uint64_t *random)
{
	int groups = below(random, 2);
	if (groups) {
		note("setgroups", -1, CALL, setgroups(0, 0), 0);
		note("setresgid", -1, CALL, setresgid(GROUP, GROUP, GROUP), 0);
	}
	note("setresuid", -1, CALL, setresuid(USER, USER, USER), 0);
}

// For a few steps, as a server that acts for its client.
void step_seteuid(uint64_t *random)
{
	if (getuid() != 0)
		return;
	if (note("seteuid", -1, CALL, seteuid(USER), 0))
		return;
	for (int i = 0; i < 3; i++) {
		int what = below(random, 5);
		(what == 0 ? step_open : what < 3 ? step_write : what == 3 ? step_sync : step_close)(random);
	}
	note("seteuid, back", -1, CALL, seteuid(0), 0);
}

void step_umask(uint64_t *random)
{
	static const mode_t MASKS[] = {0, 022, 027, 077, 0177};
	note("umask", -1, CALL, umask(MASKS[below(random, 5)]), 0);
}

void step_chmod(uint64_t *random)
{
	static const mode_t MODES[] = {0444, 0444, 0644, 0600, 0666, 0400, 04755, 02755, 0640};
	int slot = open_slot(random), by_name = below(random, 3) == 0, file = below(random, FILES);
	mode_t mode = MODES[below(random, sizeof MODES / sizeof *MODES)];
	if (by_name || slot < 0)
		note("chmod", file, MAY, chmod(name_of(file), mode), mode);
	else
		note("fchmod", slots[slot].file, MAY, fchmod(slots[slot].fd, mode), mode);
}

void step_chown(uint64_t *random)
{
	int slot = open_slot(random), user = below(random, 2) ? USER : 0;
	if (slot >= 0)
		note("fchown", slots[slot].file, MAY, fchown(slots[slot].fd, user, below(random, 2) ? GROUP : 0), user);
}

void step_names(uint64_t *random)
{
	int file = below(random, FILES), how = below(random, 4), slot = free_slot(random);
	char old[32];
	strcpy(old, name_of(file));
	switch (how) {
	case 0: // removed and created again
		note("unlink", file, MAY, unlink(old), 0);
		// Open descriptors would refer to a file without a name: the next step could not tell which one it uses.
		for (int i = 0; i < SLOTS; i++)
			if (slots[i].fd >= 0 && slots[i].file == file) {
				note("close of an unlinked file", file, MAY, close(slots[i].fd), 0);
				slots[i].fd = -1;
			}
		break;
	case 1: {
		int before = moved[file];
		moved[file] = before ? 0 : 1;
		if (note("rename", file, MAY, rename(old, name_of(file)), 0))
			moved[file] = before;
		break;
	}
	case 2: // as an editor saves
		if (slot < 0)
			return;
		for (int i = 0; i < SLOTS; i++)
			if (slots[i].fd >= 0 && slots[i].file == file) {
				note("close before it is replaced", file, MAY, close(slots[i].fd), 0);
				slots[i].fd = -1;
			}
		{
			const char *other = file < ATOMIC ? "atomic-new" : "plain-new";
			unsigned char bytes[3000];
			int fd = open(other, O_RDWR | O_CREAT | O_TRUNC, 0644);
			note("open of a new one", file, CALL, fd < 0 ? fd : 0, 0);
			if (fd < 0)
				return;
			fill(bytes, sizeof bytes, next(random));
			note("write to a new one", file, CALL, write(fd, bytes, 1 + below(random, sizeof bytes)), 0);
			note("fsync of a new one", file, CALL, fsync(fd), 0);
			note("close of a new one", file, CALL, close(fd), 0);
			note("rename over the old one", file, MAY, rename(other, old), 0);
		}
		break;
	default:
		note("link", file, MAY, link(old, file < ATOMIC ? "atomic-link" : "plain-link"), 0);
		note("unlink of the link", file, MAY, unlink(file < ATOMIC ? "atomic-link" : "plain-link"), 0);
	}
}

// As a user who cleans up. Without Famio there is nothing to remove.
void step_rmfamio(uint64_t *random)
{
	(void)random;
	note("rm -r .famio", -1, CALL, 0, 0);
	DIR *folder = opendir(".famio");
	if (!folder)
		return;
	for (struct dirent *entry; (entry = readdir(folder));)
		if (entry->d_name[0] != '.')
			unlinkat(dirfd(folder), entry->d_name, 0);
	closedir(folder);
	rmdir(".famio");
	usleep(5000); // a SYNC within a millisecond or two after the last one may not notice it (docs/guarantees.md)
}
