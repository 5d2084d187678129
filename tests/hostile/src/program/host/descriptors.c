// What programs do to descriptor numbers: close all, move them about, use them up, try numbers that are not theirs.
#include "host.h"

static int inline_close(int fd)
{
#if defined __x86_64__
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(SYS_close), "D"(fd) : "rcx", "r11", "memory");
	return (int)result;
#elif defined __aarch64__
	register long x8 __asm__("x8") = SYS_close, x0 __asm__("x0") = fd;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8) : "memory");
	return (int)x0;
#else
	return (int)syscall(SYS_close, fd);
#endif
}

// The ways in which a daemon closes inherited descriptors.
void step_close_many(uint64_t *random)
{
	int how = below(random, numbers_known() ? 6 : 5), few = 3 + below(random, 20), closed = 0;
	switch (how) {
	case 0:
		note("close_range(3, all)", -1, MAY, close_range(3, ~0u, 0), 0);
		forget_from(3);
		break;
	case 1:
		closefrom(3);
		note("closefrom(3)", -1, MAY, 0, 0);
		forget_from(3);
		break;
	case 2:
		for (int fd = 3; fd < 1024; fd++)
			closed += close(fd) == 0;
		note("close of 3 to 1023: so many were open", -1, MAY, closed, 0);
		forget_from(3);
		break;
	case 3:
		for (int fd = 3; fd < 1024; fd++)
			closed += syscall(SYS_close, fd) == 0;
		note("syscall(close) of 3 to 1023", -1, MAY, closed, 0);
		forget_from(3);
		break;
	case 4:
		note("syscall(close_range, 3, all)", -1, MAY, syscall(SYS_close_range, 3, ~0u, 0), 0);
		forget_from(3);
		break;
	default:
		for (int fd = few; fd < few + 6; fd++) {
			closed += close(fd) == 0;
			for (int i = 0; i < SLOTS; i++)
				if (slots[i].fd == fd)
					slots[i].fd = -1;
		}
		note("close of six numbers: so many were open", -1, MAY, closed, few);
	}
}

void step_close_unknown(uint64_t *random)
{
	int fd = below(random, 3) ? 3 + (int)below(random, 40) : soft_limit() - 1 - (int)below(random, 40);
	if (fd >= 3 && !is_ours(fd) && numbers_known())
		note("close of a number that is not open", -1, CALL, close(fd), fd);
}

// By an inline system call, which no library sees. From here on only other files, signals and hangs count.
void step_close_inline(uint64_t *random)
{
	int from = 3 + below(random, 4);
	board->strange = 1;
	for (int fd = from; fd < 1024; fd++)
		inline_close(fd);
	forget_from(from);
	for (int i = 0; i < 6; i++) {
		int file = ATOMIC + below(random, PLAIN), slot = free_slot(random);
		int fd = slot < 0 ? -1 : open(name_of(file), O_RDWR | O_CREAT, 0644);
		if (fd >= 0)
			slots[slot] = (struct slot){.fd = fd, .file = file, .flags = O_RDWR};
	}
}

void step_std(uint64_t *random)
{
	int fd = below(random, 3), how = below(random, 4), slot = open_slot(random), file = ATOMIC + below(random, PLAIN);
	int is_free = !is_ours(fd);
	if (!is_free)
		return;
	if (fd == 2)
		board->mute = 1;
	switch (how) {
	case 0:
		note("close of 0, 1 or 2", -1, CALL, close(fd), fd);
		break;
	case 1: // not 2: if stderr was redirected to a log, it may contain notices
		if (slot >= 0 && slots[slot].file >= ATOMIC && fd < 2)
			note("dup2 of a plain file to 0 or 1", slots[slot].file, CALL, dup2(slots[slot].fd, fd), fd);
		break;
	case 2: // as a daemon does
		for (int std = 0; std < 3; std++)
			if (!is_ours(std))
				close(std);
		board->mute = 1;
		break;
	default: {
		int to = free_slot(random);
		close(fd);
		if (to < 0)
			return;
		int got = open(name_of(file), O_RDWR | O_CREAT | O_APPEND, 0644);
		note("open after a close of 0, 1 or 2", file, CALL, has(NUMBERS) || got < 0 ? got : 0, 0);
		if (got >= 0)
			slots[to] = (struct slot){.fd = has(NUMBERS) ? got : place(got, 0, random), .file = file, .flags = O_RDWR};
	}
	}
}

// A message to stderr, whatever that is now; if the program has closed it, EBADF.
void step_message(uint64_t *random)
{
	static const char TEXT[] = "a message of the program's\n";
	int fd = 1 + below(random, 2), atomic = 0;
	for (int i = 0; i < SLOTS; i++)
		atomic |= slots[i].fd == fd && slots[i].file < ATOMIC;
	if (!atomic)
		note("write to 1 or 2", -1, CALL, write(fd, TEXT, sizeof TEXT - 1), fd);
}

void step_move(uint64_t *random)
{
	int from = open_slot(random), how = below(random, 4), limit = soft_limit();
	int wanted = below(random, 3) ? 3 + (int)below(random, 30) : limit - 1 - (int)below(random, 20);
	int onto = open_slot(random), to = free_slot(random);
	if (from < 0)
		return;
	if (how == 0 && onto != from) { // over another one of its own
		if (onto >= 0 && slots[onto].fd == 2)
			return; // what dup2 puts there is standard error: it may contain notices
		int fd = below(random, 2) ? dup2(slots[from].fd, slots[onto].fd) : dup3(slots[from].fd, slots[onto].fd, 0);
		note("dup2 over another file", slots[onto].file, MAY, fd, slots[onto].fd);
		if (fd >= 0)
			slots[onto] = (struct slot){.fd = fd, .file = slots[from].file, .flags = slots[from].flags & ~O_CLOEXEC};
		return;
	}
	if (to < 0 || wanted < 3 || is_ours(wanted) || (how == 1 && !has(NUMBERS)))
		return;
	int fd;
	if (how == 1) {
		fd = fcntl(slots[from].fd, F_DUPFD, wanted);
		note("fcntl(F_DUPFD)", slots[from].file, CALL, has(NUMBERS) || fd < 0 ? fd : 0, wanted);
	} else {
		fd = how == 2 ? dup2(slots[from].fd, wanted) : dup3(slots[from].fd, wanted, O_CLOEXEC);
		note(how == 2 ? "dup2" : "dup3", slots[from].file, CALL, fd, wanted);
	}
	if (fd >= 0) {
		int cloexec = how == 3 ? O_CLOEXEC : 0;
		slots[to] = (struct slot){.fd = fd, .file = slots[from].file, .flags = (slots[from].flags & ~O_CLOEXEC) | cloexec};
	}
}

// Which numbers are open, apart from those that the program has opened itself.
void step_probe(uint64_t *random)
{
	int strangers = 0;
	(void)random;
	for (int fd = 3; fd < 1024; fd++)
		strangers += !is_ours(fd) && fcntl(fd, F_GETFD) >= 0;
	note("fcntl(F_GETFD): open, and not opened by the program", -1, CALL, strangers, 0);
}

// A write, a read, or an fsync with a number that is not open.
void step_stray(uint64_t *random)
{
	int fd = below(random, 3) ? 3 + (int)below(random, 40) : soft_limit() - 1 - (int)below(random, 40);
	int how = below(random, 4);
	char bytes[64];
	struct stat stat;
	memset(bytes, 'x', sizeof bytes);
	if (fd < 3 || is_ours(fd) || !numbers_known())
		return;
	if (how == 0)
		note("write by a number that is not open", -1, CALL, write(fd, bytes, sizeof bytes), fd);
	else if (how == 1)
		note("pread by a number that is not open", -1, CALL, pread(fd, bytes, sizeof bytes, 0), fd);
	else if (how == 2)
		note("ftruncate by a number that is not open", -1, CALL, ftruncate(fd, 100), fd);
	else
		note("fstat by a number that is not open", -1, CALL, fstat(fd, &stat), fd);
}

// Uses up all numbers for a moment: open files must go on working.
void step_full(uint64_t *random)
{
	int full[1024], count = 0, fd;
	struct rlimit limit, small;
	getrlimit(RLIMIT_NOFILE, &limit);
	small = limit;
	small.rlim_cur = 64 + below(random, 64);
	if (limit.rlim_cur < small.rlim_cur)
		small.rlim_cur = limit.rlim_cur;
	setrlimit(RLIMIT_NOFILE, &small);
	while (count < 1024 && (fd = open(".", O_RDONLY | O_CLOEXEC)) >= 0)
		full[count++] = fd;
	note("open until it fails", -1, CALL, fd, 0);
	for (int i = 0; i < 3; i++) {
		if (below(random, 2))
			step_write(random);
		else
			step_sync(random);
	}
	step_read(random);
	while (count)
		close(full[--count]);
	setrlimit(RLIMIT_NOFILE, &limit);
}

void step_nofile(uint64_t *random)
{
	static const rlim_t LIMITS[] = {4, 10, 20, 64, 256, 1024};
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = LIMITS[below(random, 6)];
	if (limit.rlim_cur > limit.rlim_max)
		limit.rlim_cur = limit.rlim_max;
	note("setrlimit(RLIMIT_NOFILE)", -1, CALL, setrlimit(RLIMIT_NOFILE, &limit), limit.rlim_cur);
}
