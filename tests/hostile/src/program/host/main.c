// The board, the table of steps, and the loop.
#include "host.h"

struct board *board;
struct slot slots[SLOTS];
int moved[FILES];
uint32_t now;
uint64_t enabled;
char **arguments;
uint32_t entry_limit;

static const struct {
	enum class class;
	int weight;
	step_function *run;
} STEPS[] = {
	{BASE, 14, step_open}, {BASE, 20, step_write}, {BASE, 8, step_read}, {BASE, 12, step_sync}, {BASE, 7, step_close},
	{BASE, 3, step_seek}, {BASE, 3, step_truncate}, {BASE, 4, step_stat}, {BASE, 3, step_dup},
	{CLOSE, 3, step_close_many}, {CLOSE, 3, step_close_unknown}, {INLINE, 2, step_close_inline}, {STD, 4, step_std},
	{STD, 2, step_message}, {MOVE, 8, step_move}, {PROBE, 3, step_probe}, {PROBE, 3, step_stray}, {FULL, 3, step_full},
	{NOFILE, 3, step_nofile}, {FSIZE, 3, step_fsize}, {AS, 2, step_as}, {SIGNALS, 2, step_signals}, {CANCEL, 1, step_cancel},
	{ASYNC_CANCEL, 1, step_async_cancel}, {FORK, 4, step_fork}, {DAEMON, 1, step_daemon}, {VFORK, 2, step_vfork},
	{EXEC, 2, step_exec}, {CHROOT, 1, step_chroot}, {SETUID, 1, step_setuid}, {SETEUID, 2, step_seteuid}, {UMASK, 2, step_umask},
	{CHMOD, 4, step_chmod}, {CHOWN, 2, step_chown}, {NAMES, 5, step_names}, {RMFAMIO, 2, step_rmfamio}, {DIRECT, 3, step_direct},
};
enum { KINDS = sizeof STEPS / sizeof *STEPS };

uint64_t next(uint64_t *random)
{
	uint64_t z = *random += 0x9e3779b97f4a7c15;
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

uint64_t sum_of(const void *bytes, size_t length)
{
	const unsigned char *p = bytes;
	uint64_t hash = 14695981039346656037u;
	for (size_t i = 0; i < length; i++)
		hash = (hash ^ p[i]) * 1099511628211u;
	return hash;
}

void fill(unsigned char *bytes, size_t length, uint64_t seed)
{
	for (size_t i = 0; i < length; i++) {
		if (i % 8 == 0)
			next(&seed);
		bytes[i] = (unsigned char)(seed >> i % 8 * 8) | 1;
	}
}

int64_t note(const char *what, int file, enum kind kind, int64_t result, uint64_t sum)
{
	int error = result < 0 ? errno : 0;
	uint32_t at = __atomic_fetch_add(&board->count, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&board->ticks, 1, __ATOMIC_SEQ_CST);
	if (at < ENTRIES) {
		struct entry *entry = &board->entries[at];
		*entry = (struct entry){.step = now, .error = error, .result = result, .sum = sum, .kind = kind, .file = file};
		const char *name = file < 0 ? "" : file < ATOMIC ? " atomic-" : " plain-";
		size_t end = 0;
		for (const char *part = what; *part && end < sizeof entry->what - 1; part++)
			entry->what[end++] = *part;
		for (const char *part = name; *part && end < sizeof entry->what - 2; part++)
			entry->what[end++] = *part;
		if (file >= 0)
			entry->what[end++] = '0' + (file < ATOMIC ? file : file - ATOMIC);
	}
	if (entry_limit && at + 1 >= entry_limit)
		syscall(SYS_kill, 0, SIGKILL);
	return result;
}

const char *name_of(int file)
{
	static char name[32];
	int atomic = file < ATOMIC;
	char *to = stpcpy(name, atomic ? "atomic-" : "plain-");
	*to++ = '0' + (atomic ? file : file - ATOMIC);
	if (moved[file]) {
		*to++ = '-';
		*to++ = 'a' + moved[file];
	}
	*to = 0;
	return name;
}

int open_slot(uint64_t *random)
{
	int from = below(random, SLOTS);
	for (int i = 0; i < SLOTS; i++)
		if (slots[(from + i) % SLOTS].fd >= 0)
			return (from + i) % SLOTS;
	return -1;
}

int free_slot(uint64_t *random)
{
	int from = below(random, SLOTS);
	for (int i = 0; i < SLOTS; i++)
		if (slots[(from + i) % SLOTS].fd < 0)
			return (from + i) % SLOTS;
	return -1;
}

int is_ours(int fd)
{
	for (int i = 0; i < SLOTS; i++)
		if (slots[i].fd == fd)
			return 1;
	return 0;
}

int others_have(int file, int but)
{
	for (int i = 0; i < SLOTS; i++)
		if (i != but && slots[i].fd >= 0 && slots[i].file == file)
			return 1;
	return 0;
}

void forget_from(int first)
{
	for (int i = 0; i < SLOTS; i++)
		if (slots[i].fd >= first)
			slots[i].fd = -1;
}

int soft_limit(void)
{
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	return limit.rlim_cur > 1024 ? 1024 : (int)limit.rlim_cur;
}

static int among(const char *only, uint32_t step)
{
	if (*only == '-')
		return 1;
	for (const char *p = only; *p; p++) {
		if (strtoul(p, (char **)&p, 10) == step)
			return 1;
		if (!*p)
			break;
	}
	return 0;
}

static void die(const char *what)
{
	perror(what);
	_exit(99);
}

// DIR LOG SEED STEPS KILL CLASSES ONLY FROM LIMIT: SIGKILL comes before step KILL, -1: never; FROM continues after an
// exec; after LIMIT entries everything is killed, 0: never.
int main(int argc, char **argv)
{
	if (argc != 10)
		return 98;
	arguments = argv;
	uint64_t seed = strtoull(argv[3], 0, 10);
	uint32_t steps = strtoul(argv[4], 0, 10), from = strtoul(argv[8], 0, 10);
	long kill_at = strtol(argv[5], 0, 10);
	enabled = strtoull(argv[6], 0, 16);
	entry_limit = strtoul(argv[9], 0, 10);
	int fd = open(argv[2], O_RDWR | O_CLOEXEC);
	if (fd < 0)
		die(argv[2]);
	board = mmap(0, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (board == MAP_FAILED)
		die("mmap");
	close(fd);
	signal(SIGXFSZ, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (from == 0) {
		if (chdir(argv[1]))
			die(argv[1]);
		for (int i = 0; i < SLOTS; i++)
			slots[i].fd = -1;
	} else {
		memcpy(slots, board->slots, sizeof slots);
		memcpy(moved, board->moved, sizeof moved);
		for (int i = 0; i < SLOTS; i++)
			if (slots[i].fd >= 0 && slots[i].flags & O_CLOEXEC)
				slots[i].fd = -1;
	}
	int total = 0;
	for (int i = 0; i < KINDS; i++)
		total += STEPS[i].weight;
	for (now = from; now < steps; now++) {
		uint64_t random = seed * 0x9e3779b97f4a7c15 + (uint64_t)(now + 1) * 0xd1342543de82ef95;
		int pick = below(&random, total), kind = 0;
		while (pick >= STEPS[kind].weight)
			pick -= STEPS[kind++].weight;
		__atomic_store_n(&board->begun, now, __ATOMIC_SEQ_CST);
		if (now == kill_at) {
			syscall(SYS_kill, getpid(), SIGKILL);
		}
		if (has(STEPS[kind].class) && among(argv[7], now))
			STEPS[kind].run(&random);
		__atomic_store_n(&board->ended, now + 1, __ATOMIC_SEQ_CST);
	}
	board->over = 1;
	switch (seed % 4) {
	case 0:
		_exit(0);
	case 1:
		exit(0);
	case 2:
		quick_exit(0);
	default:
		return 0;
	}
}
