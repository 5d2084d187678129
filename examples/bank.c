/* Moves money between the accounts of two files, one transaction per transfer. Whenever it is killed, and however
 * many copies of it run at a time, no money is lost or created.
 *
 *   cc bank.c -lfamio -o bank
 *   ./bank DIR transfer N     makes N transfers, and reports each as durable
 *   ./bank DIR check          adds up all accounts */
#include <errno.h>
#include <famio.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACCOUNTS = 100, MONEY = 1000 };

/* One file: its accounts, and the number of transfers. */
struct ledger {
  uint64_t accounts[ACCOUNTS];
  uint64_t transfers;
};

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, nverrmsg());
  exit(1);
}

static int open_ledger(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  int fd = nvopen(path, O_RDWR | O_CREAT | O_ATOMIC, 0600);
  if (fd < 0) fail(path);
  return fd;
}

/* A transaction of both files, which fails with EAGAIN if others change what it has read. */
static nvtx *begin(int giro, int savings) {
  nvtx *tx = nvtx_begin(giro, NVTX_CHECK);
  if (tx == NULL || nvtx_join(tx, savings) != 0) fail("transaction");
  return tx;
}

/* Zero where its commit would fail. */
static uint64_t get(nvtx *tx, int fd, size_t at) {
  uint64_t value = 0;
  if (nvtx_pread(tx, fd, &value, sizeof value, at) < 0 && errno != EAGAIN) fail("read");
  return value;
}

static void set(nvtx *tx, int fd, size_t at, uint64_t value) {
  if (nvtx_pwrite(tx, fd, &value, sizeof value, at) < 0) fail("write");
}

/* Returns whether it was committed; otherwise another process was first. */
static int commit(nvtx *tx) {
  if (nvtx_commit(tx) == 0) return 1;
  if (errno != EAGAIN) fail("commit");
  return 0;
}

/* Gives both files their first money, unless another process was first: then a read finds it, or the commit fails. */
static void begin_with_money(int giro, int savings) {
  struct ledger ledger = {.transfers = 0};
  for (int i = 0; i < ACCOUNTS; i++) ledger.accounts[i] = MONEY;
  nvtx *tx;
  do {
    tx = begin(giro, savings);
    char first;
    ssize_t there = nvtx_pread(tx, giro, &first, 1, 0);
    if (there > 0) {
      nvtx_abort(tx);
      return;
    }
    if (there < 0 && errno != EAGAIN) fail("read");
    if (nvtx_pwrite(tx, giro, &ledger, sizeof ledger, 0) < 0 || nvtx_pwrite(tx, savings, &ledger, sizeof ledger, 0) < 0)
      fail("write");
  } while (!commit(tx));
}

/* Returns the number of transfers including this one; 0: try again. */
static uint64_t transfer(int giro, int savings) {
  int from = rand() % 2 ? giro : savings, to = from == giro ? savings : giro;
  size_t payer = rand() % ACCOUNTS * sizeof(uint64_t), payee = rand() % ACCOUNTS * sizeof(uint64_t);
  nvtx *tx = begin(giro, savings);
  uint64_t there = get(tx, from, payer), amount = rand() % 50;
  if (amount > there) amount = there;
  set(tx, from, payer, there - amount);
  set(tx, to, payee, get(tx, to, payee) + amount);
  uint64_t transfers = get(tx, giro, offsetof(struct ledger, transfers)) + 1;
  set(tx, giro, offsetof(struct ledger, transfers), transfers);
  set(tx, savings, offsetof(struct ledger, transfers), transfers);
  return commit(tx) ? transfers : 0;
}

static void check(int giro, int savings) {
  struct ledger one = {0}, two = {0};
  if (nvpread(giro, &one, sizeof one, 0) < 0 || nvpread(savings, &two, sizeof two, 0) < 0) fail("read");
  uint64_t sum = 0;
  for (int i = 0; i < ACCOUNTS; i++) sum += one.accounts[i] + two.accounts[i];
  if (one.transfers != two.transfers || (sum != 0 && sum != 2 * ACCOUNTS * MONEY)) {
    fprintf(stderr, "DAMAGED: %llu in all, after %llu and %llu transfers\n", (unsigned long long)sum,
            (unsigned long long)one.transfers, (unsigned long long)two.transfers);
    exit(1);
  }
  printf("%llu\n", (unsigned long long)one.transfers);
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: bank DIR transfer N | bank DIR check\n");
    return 2;
  }
  int giro = open_ledger(argv[1], "giro"), savings = open_ledger(argv[1], "savings");
  if (strcmp(argv[2], "check") == 0) {
    check(giro, savings);
  } else {
    begin_with_money(giro, savings);
    for (long left = argc > 3 ? atol(argv[3]) : 1000; left > 0;) {
      uint64_t transfers = transfer(giro, savings);
      if (transfers == 0) continue;
      printf("%llu\n", (unsigned long long)transfers);
      fflush(stdout);
      left--;
    }
  }
  return nvclose(giro) == 0 && nvclose(savings) == 0 ? 0 : 1;
}
