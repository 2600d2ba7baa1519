/* Posts messages in four ways through the stand-in provider, and prints what it did, one CSV line a post:
 * phase,qp,wr_id,enter_ns,exit_ns,seen_ns (CLOCK_BOOTTIME)
 *   a  a proxy that is woken for every four messages, fire and forget      c  put and signal, 16 outstanding
 *   b  put, wait, signal, wait: stop-and-wait                              d  chained write + 0-byte write-with-imm
 * usage: driver PHASES MESSAGES BYTES [GAP_US]       or: driver rate MESSAGES BYTES PER_SECOND
 */
#include "verbs.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUTSTANDING = 16 };
struct row { char phase; uint32_t qp; uint64_t wr_id, enter_ns, exit_ns, seen_ns; };
static struct row *rows;
static size_t n_rows;
static long messages, bytes, gap_us = 200;

static void post(struct qp *qp, char phase, uint64_t wr_id, int opcode, uint32_t length)
{
	struct sge sge = { 0x1000, length, 1 };
	struct send_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = SIGNALED }, *bad;
	struct send_wr tail = { .wr_id = wr_id, .opcode = WRITE_IMM, .send_flags = SIGNALED };
	if (phase == 'd')
		wr.send_flags = 0, wr.next = &tail;
	mlx5_post_send(qp, &wr, &bad);
	rows[n_rows++] = (struct row){ phase, qp->qp_num, wr_id, last_post.enter_ns, last_post.exit_ns, 0 };
}

static void poll_once(struct qp *qp, int *open, size_t *oldest)
{
	struct wc wc[8];
	int n = mlx5_poll_cq_v1(qp->send_cq, 8, wc);
	uint64_t now = now_ns();
	for (int i = 0; i < n; i++, (*open)--)
		rows[(*oldest)++].seen_ns = now;
}

static void wait_below(struct qp *qp, int limit, int *open, size_t *oldest)
{
	while (*open >= limit)
		poll_once(qp, open, oldest);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t woken = PTHREAD_COND_INITIALIZER;
static long ready;

static void *proxy(void *unused)
{
	struct qp *qp = new_qp(0x1a1);
	size_t oldest = n_rows;
	int open = 0;
	for (long done = 0; done < messages;) {
		pthread_mutex_lock(&lock);
		while (ready <= done)
			pthread_cond_wait(&woken, &lock);
		long limit = ready;
		pthread_mutex_unlock(&lock);
		for (; done < limit; done++, open++) {
			wait_below(qp, OUTSTANDING, &open, &oldest);
			post(qp, 'a', (uint64_t)done, WRITE_IMM, (uint32_t)bytes);
		}
		poll_once(qp, &open, &oldest);
	}
	wait_below(qp, 1, &open, &oldest);
	return unused;
}

static void *sender(void *phase)
{
	char p = *(char *)phase;
	struct qp *qp = new_qp(p == 'b' ? 0x2b2 : p == 'c' ? 0x3c3 : 0x4d4);
	size_t oldest = n_rows;
	int open = 0, limit = p == 'b' ? 1 : OUTSTANDING;
	for (long i = 0; i < messages; i++) {
		wait_below(qp, limit, &open, &oldest);
		post(qp, p, p == 'd' ? (uint64_t)(i & 255) : (uint64_t)(2 * i), WRITE, (uint32_t)bytes), open++;
		if (p == 'd')
			continue;
		wait_below(qp, limit, &open, &oldest);
		post(qp, p, (uint64_t)(2 * i + 1), FETCH_ADD, 8), open++;
	}
	wait_below(qp, 1, &open, &oldest);
	return NULL;
}

static void at_rate(long per_second)
{
	struct qp *qp = new_qp(0x5e5);
	struct sge sge = { 0x1000, (uint32_t)bytes, 1 };
	uint64_t begin = now_ns();
	post_cost_ns = 100;
	for (long i = 0; i < messages; i++) {
		struct send_wr wr = { .wr_id = (uint64_t)i, .sg_list = &sge, .num_sge = 1, .opcode = WRITE, .send_flags = SIGNALED }, *bad;
		while (now_ns() - begin < (uint64_t)(i * (1e9 / (double)per_second)))
			;
		mlx5_post_send(qp, &wr, &bad);
	}
	printf("%ld,%.0f\n", messages, (double)messages / ((double)(now_ns() - begin) / 1e9));
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	messages = atol(argv[2]), bytes = atol(argv[3]);
	if (!strcmp(argv[1], "rate")) {
		at_rate(atol(argv[4]));
		return 0;
	}
	if (argc > 4)
		gap_us = atol(argv[4]);
	rows = calloc((size_t)messages * 8, sizeof *rows);
	memset(rows, 1, (size_t)messages * 8 * sizeof *rows);
	for (const char *p = argv[1]; *p; p++) {
		pthread_t thread;
		char phase = *p;
		pthread_create(&thread, NULL, phase == 'a' ? proxy : sender, &phase);
		if (phase == 'a') {
			usleep(20000);
			for (long i = 0; i < messages; i += 4) {
				pthread_mutex_lock(&lock);
				ready = i + 4 > messages ? messages : i + 4;
				pthread_cond_signal(&woken);
				pthread_mutex_unlock(&lock);
				usleep((useconds_t)gap_us);
			}
		}
		pthread_join(thread, NULL);
		usleep(20000);
	}
	for (size_t i = 0; i < n_rows; i++)
		printf("%c,%u,%lu,%lu,%lu,%lu\n", rows[i].phase, rows[i].qp, rows[i].wr_id, rows[i].enter_ns, rows[i].exit_ns,
			rows[i].seen_ns);
	return 0;
}
