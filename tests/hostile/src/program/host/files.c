// What an ordinary program does with its files.
#include "host.h"

enum { REACH = 200000, LONGEST = 40000 };

// Moves it to a number that depends only on the seed and the step, so that what follows is the same whatever number
// open chose.
int place(int fd, int flags, uint64_t *random)
{
	if (fd < 0 || !has(MOVE))
		return fd;
	int limit = soft_limit(), wanted = below(random, 4) ? 3 + (int)below(random, 40) : limit - 1 - (int)below(random, 8);
	int stay = below(random, 2);
	if (has(NUMBERS) && stay)
		return fd;
	while (wanted < limit && (is_ours(wanted) || wanted < 3))
		wanted++;
	if (wanted == fd)
		return fd;
	int to = dup3(fd, wanted, flags & O_CLOEXEC);
	note("dup3 of what was opened", -1, CALL, to, 0);
	if (to < 0)
		return fd;
	note("close of what was moved", -1, CALL, close(fd), 0);
	return to;
}

void step_open(uint64_t *random)
{
	static const int FLAGS[] = {O_RDWR | O_CREAT, O_RDWR | O_CREAT, O_RDWR | O_CREAT, O_RDONLY, O_WRONLY | O_CREAT,
		O_RDWR | O_CREAT | O_APPEND, O_RDWR | O_CREAT | O_TRUNC, O_RDWR | O_CREAT | O_CLOEXEC, O_RDWR | O_CREAT | O_EXCL,
		O_RDWR | O_CREAT | O_SYNC};
	static const mode_t MODES[] = {0644, 0644, 0600, 0666, 0640, 0444};
	int slot = free_slot(random), file = below(random, FILES);
	int flags = FLAGS[below(random, sizeof FLAGS / sizeof *FLAGS)];
	mode_t mode = MODES[below(random, has(CHMOD) ? 6 : 5)];
	if (slot < 0)
		return;
	int fd = open(name_of(file), flags, mode);
	note(flags & O_TRUNC ? "open, O_TRUNC" : "open", file, MAY, has(NUMBERS) || fd < 0 ? fd : 0, flags);
	if (fd < 0)
		return;
	slots[slot] = (struct slot){.fd = place(fd, flags, random), .file = file, .flags = flags};
}

void step_write(uint64_t *random)
{
	static unsigned char bytes[LONGEST];
	int slot = open_slot(random);
	size_t length = 1 + below(random, below(random, 3) ? 5000 : LONGEST);
	off_t at = below(random, REACH);
	int how = below(random, 3);
	uint64_t content = next(random);
	if (slot < 0)
		return;
	fill(bytes, length, content);
	int file = slots[slot].file, fd = slots[slot].fd;
	enum kind kind = slots[slot].flags & O_SYNC ? SYNC : CALL;
	if (how)
		note("pwrite", file, kind, pwrite(fd, bytes, length, at), at);
	else
		note("write", file, kind, write(fd, bytes, length), 0);
}

void step_read(uint64_t *random)
{
	static unsigned char bytes[LONGEST];
	int slot = open_slot(random);
	off_t at = below(random, REACH);
	int how = below(random, 3);
	if (slot < 0)
		return;
	ssize_t length = how ? pread(slots[slot].fd, bytes, sizeof bytes, at) : read(slots[slot].fd, bytes, sizeof bytes);
	note(how ? "pread" : "read", slots[slot].file, CALL, length, length > 0 ? sum_of(bytes, length) : 0);
}

void step_sync(uint64_t *random)
{
	int slot = open_slot(random), data = below(random, 2);
	if (slot < 0)
		return;
	int fd = slots[slot].fd;
	enum kind kind = (slots[slot].flags & O_ACCMODE) == O_RDONLY ? MAY : SYNC;
	note(data ? "fdatasync" : "fsync", slots[slot].file, kind, data ? fdatasync(fd) : fsync(fd), 0);
}

void step_close(uint64_t *random)
{
	int slot = open_slot(random), raw = below(random, 4) == 0;
	if (slot < 0)
		return;
	int fd = slots[slot].fd;
	int last = !others_have(slots[slot].file, slot);
	note(last ? "close, the last" : "close", slots[slot].file, MAY, raw ? syscall(SYS_close, fd) : close(fd), 0);
	slots[slot].fd = -1;
}

void step_seek(uint64_t *random)
{
	int slot = open_slot(random), end = below(random, 3) == 0;
	off_t to = below(random, REACH);
	if (slot >= 0)
		note("lseek", slots[slot].file, CALL, lseek(slots[slot].fd, end ? 0 : to, end ? SEEK_END : SEEK_SET), 0);
}

void step_truncate(uint64_t *random)
{
	int slot = open_slot(random);
	off_t to = below(random, REACH);
	if (slot >= 0)
		// On a descriptor with O_SYNC it may be a SYNC.
		note("ftruncate", slots[slot].file, slots[slot].flags & O_SYNC ? MAY : CALL, ftruncate(slots[slot].fd, to), to);
}

void step_stat(uint64_t *random)
{
	int slot = open_slot(random), by_name = below(random, 2), file = below(random, FILES);
	struct stat stat = {0};
	if (by_name || slot < 0) {
		int result = lstat(name_of(file), &stat);
		note("lstat", file, CALL, result, stat.st_size * 1000003u + stat.st_mode + (uint64_t)stat.st_nlink * 7919);
	} else {
		int result = fstat(slots[slot].fd, &stat);
		note("fstat", slots[slot].file, CALL, result, stat.st_size * 1000003u + stat.st_mode + (uint64_t)stat.st_nlink * 7919);
	}
}

static int is_standard_free(void)
{
	return fcntl(0, F_GETFD) < 0 || fcntl(1, F_GETFD) < 0 || fcntl(2, F_GETFD) < 0;
}

void step_dup(uint64_t *random)
{
	int from = open_slot(random), to = free_slot(random);
	if (from < 0 || to < 0)
		return;
	// In another root, Famio cannot look who else has the file open, and refuses to make the kernel append for them.
	if (board->jail && slots[from].flags & O_APPEND && is_standard_free())
		return;
	int fd = dup(slots[from].fd);
	note("dup", slots[from].file, CALL, has(NUMBERS) || fd < 0 ? fd : 0, 0);
	if (fd < 0)
		return;
	slots[to] = slots[from];
	slots[to].flags &= ~O_CLOEXEC;
	slots[to].fd = place(fd, 0, random);
}

void step_direct(uint64_t *random)
{
	int file = below(random, FILES), odd = below(random, 2);
	size_t length = 4096 * (1 + below(random, 3)) - (odd ? 512 + below(random, 100) : 0);
	uint64_t content = next(random);
	int fd = open(name_of(file), O_RDWR | O_DIRECT);
	note("open, O_DIRECT", file, MAY, fd < 0 ? fd : 0, 0);
	if (fd < 0)
		return;
	unsigned char *bytes = mmap(0, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fill(bytes, 16384, content);
	note(odd ? "pwrite, O_DIRECT, unaligned" : "pwrite, O_DIRECT", file, CALL, pwrite(fd, bytes, length, odd ? 100 : 4096), 0);
	munmap(bytes, 16384);
	note("close, O_DIRECT", file, MAY, close(fd), 0);
}
