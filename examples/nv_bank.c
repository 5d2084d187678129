/* Moves money between the accounts of two private regions, by the interface of vNVML. Whenever it is killed, no money
 * is lost or created. Accounts are read by pointer; only what nv_write has written, and nv_commit has committed, is
 * found again.
 *
 *   cc nv_bank.c -lfamio -o nv_bank
 *   ./nv_bank DIR transfer N     makes N transfers, and reports each as durable
 *   ./nv_bank DIR check          adds up all accounts */
#include <famio.h>
#include <famio_vnvml.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ACCOUNTS = 100, MONEY = 1000 };

/* One region: its accounts, and the number of transfers. */
struct ledger {
  uint64_t accounts[ACCOUNTS];
  uint64_t transfers;
};

static void fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, nverrmsg());
  exit(1);
}

static struct ledger *open_ledger(const char *folder, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  struct ledger *ledger = nv_allocate(path, sizeof *ledger, NV_PRIVATE);
  if (ledger == NULL) fail(path);
  return ledger;
}

static void set(nv_tx *tx, uint64_t *where, uint64_t value) {
  if (nv_write(tx, where, &value, sizeof value) != 0) fail("write");
}

/* Both ledgers get their first money, or neither does. */
static void begin_with_money(struct ledger *giro, struct ledger *savings) {
  struct ledger rich = {.transfers = 0};
  for (int i = 0; i < ACCOUNTS; i++) rich.accounts[i] = MONEY;
  nv_tx *tx = nv_txbegin();
  if (tx == NULL || nv_write(tx, giro, &rich, sizeof rich) != 0 || nv_write(tx, savings, &rich, sizeof rich) != 0 ||
      nv_commit(tx) != 0)
    fail("first money");
}

/* Returns whether the payer had enough. */
static int transfer(struct ledger *from, struct ledger *to) {
  uint64_t *payer = &from->accounts[rand() % ACCOUNTS], *payee = &to->accounts[rand() % ACCOUNTS];
  uint64_t amount = rand() % (2 * MONEY), transfers = from->transfers + 1;
  nv_tx *tx = nv_txbegin();
  if (tx == NULL) fail("begin");
  set(tx, payee, *payee + amount);
  set(tx, &from->transfers, transfers);
  set(tx, &to->transfers, transfers);
  if (*payer < amount) {
    if (nv_abort(tx) != 0) fail("abort"); /* the payee's account is as before */
    return 0;
  }
  set(tx, payer, *payer - amount);
  if (nv_commit(tx) != 0) fail("commit");
  return 1;
}

/* Returns all money: 0 at the very beginning. */
static uint64_t check(const struct ledger *giro, const struct ledger *savings) {
  uint64_t sum = 0;
  for (int i = 0; i < ACCOUNTS; i++) sum += giro->accounts[i] + savings->accounts[i];
  if (giro->transfers != savings->transfers || (sum != 0 && sum != 2 * ACCOUNTS * MONEY)) {
    fprintf(stderr, "DAMAGED: %llu in all, after %llu and %llu transfers\n", (unsigned long long)sum,
            (unsigned long long)giro->transfers, (unsigned long long)savings->transfers);
    exit(1);
  }
  return sum;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: nv_bank DIR transfer N | nv_bank DIR check\n");
    return 2;
  }
  if (nv_init(NULL) != 0) fail("init");
  struct ledger *giro = open_ledger(argv[1], "giro"), *savings = open_ledger(argv[1], "savings");
  uint64_t money = check(giro, savings);
  if (strcmp(argv[2], "check") == 0) {
    printf("%llu\n", (unsigned long long)giro->transfers);
  } else {
    if (money == 0) begin_with_money(giro, savings);
    for (long left = argc > 3 ? atol(argv[3]) : 1000; left > 0;) {
      int done = rand() % 2 ? transfer(giro, savings) : transfer(savings, giro);
      if (!done) continue;
      printf("%llu\n", (unsigned long long)giro->transfers);
      fflush(stdout);
      left--;
    }
    check(giro, savings);
  }
  if (nv_release() != 0) fail("release");
  return 0;
}
