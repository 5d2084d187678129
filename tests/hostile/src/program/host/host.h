// The hostile host program: random steps from a seed, each written down on a board in shared memory.
//
// It knows nothing of Famio. The same steps run once under Famio and once without, in another folder; all that they answer,
// and all that they leave, has to be the same. A step comes from the seed and its number alone.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ATOMIC = 4, PLAIN = 3, FILES = ATOMIC + PLAIN, SLOTS = 12, ENTRIES = 1 << 15 };

// What an answer means for the state of the file after a kill.
enum kind { CALL = 0, SYNC = 1, MAY = 2 };

// In the harness's format (board.rs).
struct entry {
	uint32_t step;
	int32_t error;
	int64_t result;
	uint64_t sum;
	uint8_t kind;
	int8_t file;
	char what[54];
};

struct slot {
	int32_t fd; // -1: free
	int32_t file;
	int32_t flags;
};

struct board {
	uint32_t begun;   // the current step
	uint32_t ended;   // the last finished step
	uint32_t ticks;   // calls, by any process: as long as it grows, nothing hangs
	uint32_t count;   // entries
	uint32_t over;    // 1: the end of the program was reached
	uint32_t mute;    // 1: descriptor 2 was closed or replaced: notices cannot be seen
	uint32_t strange; // 1: something was done that no library sees
	uint32_t jail;    // 1: another root
	uint64_t handler; // errnos seen in a signal handler, one bit each
	struct slot slots[SLOTS]; // for exec
	int32_t moved[FILES];
	struct entry entries[ENTRIES];
};

extern struct board *board;
extern struct slot slots[SLOTS];
extern int moved[FILES];
extern uint32_t now;       // the step
extern uint64_t enabled;   // classes
extern char **arguments;
extern uint32_t entry_limit; // after this many entries the whole group is killed; 0: never

// Classes of steps, in the order of classes.rs.
enum class {
	BASE, NUMBERS, CLOSE, INLINE, STD, MOVE, PROBE, FULL, NOFILE, FSIZE, AS, SIGNALS, CANCEL, ASYNC_CANCEL, FORK, DAEMON, VFORK,
	EXEC, CHROOT, SETUID, SETEUID, UMASK, CHMOD, CHOWN, NAMES, RMFAMIO, DIRECT, CLASSES
};
static inline int has(enum class class) { return enabled >> class & 1; }

// Random numbers of one step.
uint64_t next(uint64_t *random);
static inline uint64_t below(uint64_t *random, uint64_t bound) { return next(random) % bound; }

// Records the result of a call; the errno is the current one if the result is negative.
int64_t note(const char *what, int file, enum kind kind, int64_t result, uint64_t sum);
uint64_t sum_of(const void *bytes, size_t length);
void fill(unsigned char *bytes, size_t length, uint64_t seed);
const char *name_of(int file);
int open_slot(uint64_t *random); // an open one; -1: none
int free_slot(uint64_t *random);
int is_ours(int fd);             // whether it belongs to a slot
int others_have(int file, int but);
void forget_from(int first);     // forgets slots whose descriptors are closed
int soft_limit(void);
int place(int fd, int flags, uint64_t *random);
// Whether slots have the same numbers in both runs.
static inline int numbers_known(void) { return has(NUMBERS) || has(MOVE); }

typedef void step_function(uint64_t *random);
step_function step_open, step_write, step_read, step_sync, step_close, step_seek, step_truncate, step_stat, step_dup, step_direct;
step_function step_close_many, step_close_unknown, step_close_inline, step_std, step_message, step_move, step_probe, step_stray,
	step_full, step_nofile;
step_function step_fsize, step_as, step_chroot, step_setuid, step_seteuid, step_umask, step_chmod, step_chown, step_names,
	step_rmfamio;
step_function step_fork, step_daemon, step_vfork, step_exec, step_signals, step_cancel, step_async_cancel;
