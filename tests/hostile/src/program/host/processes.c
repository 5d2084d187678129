// Forks, programs, signals and threads. Actions at moments that the seed does not determine use a separate file
// ("atomic-s"), and write the same bytes however often they happen, so that the result is the same.
#include "host.h"

static void a_few(uint64_t *random)
{
	static step_function *const FEW[] = {step_write, step_write, step_read, step_sync, step_seek, step_stat, step_truncate,
		step_open, step_close};
	for (int i = 1 + below(random, 5); i; i--)
		FEW[below(random, sizeof FEW / sizeof *FEW)](random);
}

static void wait_for(pid_t child, const char *what)
{
	int status = 0;
	pid_t got;
	do
		got = waitpid(child, &status, 0);
	while (got < 0 && errno == EINTR);
	// The exit of a child may be a SYNC.
	note(what, -1, MAY, got == child ? 0 : -1, status);
}

void step_fork(uint64_t *random)
{
	int ending = below(random, 2);
	uint64_t own = next(random);
	pid_t child = fork();
	if (child == 0) {
		a_few(&own);
		if (ending)
			exit(3);
		_exit(3);
	}
	// Recorded only if it failed: the child may be faster.
	if (child < 0)
		note("fork", -1, CALL, -1, 0);
	else
		wait_for(child, "waitpid, of a fork");
}

// The parent exits, and the child is the program from now on.
void step_daemon(uint64_t *random)
{
	int ending = below(random, 2);
	pid_t child = fork();
	if (child > 0) {
		if (ending)
			exit(0);
		_exit(0);
	}
	note("fork, the parent ends", -1, MAY, child, 0);
}

void step_vfork(uint64_t *random)
{
	extern char **environ;
	// With few free numbers, another program's dynamic linker prints messages.
	int picked = below(random, 3), how = board->jail || soft_limit() < 16 ? 0 : picked;
	if (how == 2) {
		char *argv[] = {"true", 0};
		pid_t child = -1;
		errno = posix_spawn(&child, "/bin/true", 0, 0, argv, environ);
		if (note("posix_spawn", -1, CALL, errno ? -1 : 0, 0) == 0)
			wait_for(child, "waitpid, of a posix_spawn");
		return;
	}
	pid_t child = vfork();
	if (child == 0) {
		if (how)
			execl("/bin/true", "true", (char *)0);
		_exit(7);
	}
	if (note("vfork", -1, CALL, child < 0 ? -1 : 0, 0) == 0)
		wait_for(child, "waitpid, of a vfork");
}

void step_exec(uint64_t *random)
{
	char from[16], *argv[11];
	(void)random;
	if (board->jail || soft_limit() < 256)
		return;
	memcpy(board->slots, slots, sizeof slots);
	memcpy(board->moved, moved, sizeof moved);
	memcpy(argv, arguments, 10 * sizeof *argv);
	snprintf(from, sizeof from, "%u", now + 1);
	argv[8] = from;
	argv[10] = 0;
	note("exec", -1, MAY, 0, 0);
	execv(argv[0], argv);
	note("exec, failed", -1, CALL, -1, 0);
}

static int handler_fd = -1;
static unsigned char PATTERN[512];

static void remember(int64_t result)
{
	if (result < 0)
		__atomic_fetch_or(&board->handler, (uint64_t)1 << (errno & 63), __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&board->ticks, 1, __ATOMIC_SEQ_CST);
}

// What POSIX allows in a signal handler.
static void handler(int number)
{
	static unsigned times;
	int saved = errno;
	(void)number;
	unsigned time = __atomic_fetch_add(&times, 1, __ATOMIC_SEQ_CST);
	if (handler_fd >= 0) {
		remember(pwrite(handler_fd, PATTERN, sizeof PATTERN, 4096));
		if (time % 3 == 0)
			remember(fsync(handler_fd));
	}
	if (time % 2 == 0) {
		int fd = open("atomic-t", O_RDWR | O_CREAT, 0666);
		remember(fd);
		if (fd >= 0) {
			remember(pwrite(fd, PATTERN, sizeof PATTERN, 100));
			if (time % 4 == 0)
				remember(fdatasync(fd));
			remember(close(fd));
		}
	}
	errno = saved;
}

static void own_file(void)
{
	memset(PATTERN, 0x5a, sizeof PATTERN);
	handler_fd = open("atomic-s", O_RDWR | O_CREAT, 0666);
	note("open of atomic-s", -1, CALL, handler_fd < 0 ? -1 : 0, 0);
}

// From here on atomic-s and atomic-t have their final contents, however much was done before.
static void own_file_ends(void)
{
	if (handler_fd >= 0) {
		note("pwrite to atomic-s", -1, CALL, pwrite(handler_fd, PATTERN, sizeof PATTERN, 4096), 0);
		note("pwrite to atomic-s", -1, CALL, pwrite(handler_fd, PATTERN, sizeof PATTERN, 0), 0);
		note("fsync of atomic-s", -1, CALL, fsync(handler_fd), 0);
		note("close of atomic-s", -1, CALL, close(handler_fd), 0);
		handler_fd = -1;
	}
}

void step_signals(uint64_t *random)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART}, before;
	int micros = 150 + below(random, 400), forks = has(FORK) ? (int)below(random, 4) : 0;
	struct itimerval timer = {{0, micros}, {0, micros}}, off = {0};
	own_file();
	sigaction(SIGALRM, &action, &before);
	raise(SIGALRM);
	raise(SIGALRM);
	raise(SIGALRM);
	setitimer(ITIMER_REAL, &timer, 0);
	void *kept[64] = {0};
	for (int i = 0; i < 2000; i++) {
		int at = next(random) % 64;
		free(kept[at]);
		kept[at] = malloc(1 + next(random) % 3000);
		if (i % 100 == 0 && handler_fd >= 0) {
			remember(pwrite(handler_fd, PATTERN, sizeof PATTERN, 0));
			remember(fsync(handler_fd));
		}
	}
	for (int i = 0; i < forks; i++) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		while (child > 0 && waitpid(child, 0, 0) < 0 && errno == EINTR) {
		}
	}
	for (int i = 0; i < 64; i++)
		free(kept[i]);
	setitimer(ITIMER_REAL, &off, 0);
	sigaction(SIGALRM, &before, 0);
	own_file_ends();
}

static void *works(void *how)
{
	int old;
	pthread_setcanceltype(how ? PTHREAD_CANCEL_ASYNCHRONOUS : PTHREAD_CANCEL_DEFERRED, &old);
	for (unsigned i = 0;; i++) {
		(void)!pwrite(handler_fd, PATTERN, sizeof PATTERN, i % 2 ? 0 : 4096);
		if (i % 16 == 0)
			fsync(handler_fd);
		if (!how)
			pthread_testcancel();
		__atomic_fetch_add(&board->ticks, 1, __ATOMIC_SEQ_CST);
	}
	return 0;
}

static void cancel(uint64_t *random, void *how)
{
	pthread_t threads[3];
	int count = 1 + below(random, 3);
	own_file();
	if (handler_fd < 0)
		return;
	for (int i = 0; i < count; i++) {
		errno = pthread_create(&threads[i], 0, works, how);
		if (note("pthread_create", -1, CALL, errno ? -1 : 0, 0))
			count = i;
	}
	usleep(below(random, 2000)); // at any moment
	for (int i = 0; i < count; i++) {
		void *result = 0;
		errno = pthread_cancel(threads[i]);
		note("pthread_cancel", -1, CALL, errno ? -1 : 0, 0);
		errno = pthread_join(threads[i], &result);
		note("pthread_join", -1, CALL, errno ? -1 : 0, result == PTHREAD_CANCELED);
	}
	own_file_ends();
}

void step_cancel(uint64_t *random) { cancel(random, 0); }
void step_async_cancel(uint64_t *random) { cancel(random, (void *)1); }
