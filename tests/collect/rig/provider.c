/* Stand-in libmlx5: the functions that the collector probes, and a NIC that is a FIFO at 50 bytes/ns. */
#include "verbs.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEPTH = 65536, BYTES_PER_NS = 50 };
struct completion { uint64_t done_ns, wr_id; uint32_t bytes, qp; int opcode; };
struct cq { struct completion ring[DEPTH]; uint64_t head, tail; };

__thread struct truth last_post;
uint64_t post_cost_ns = 800, base_rtt_ns = 9000;
static uint64_t wire_free_ns;

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct qp *new_qp(uint32_t number)
{
	struct qp *qp = calloc(1, sizeof *qp);
	qp->send_cq = calloc(1, sizeof(struct cq));
	qp->qp_num = number;
	return qp;
}

__attribute__((noinline)) int mlx5_post_send(struct qp *qp, struct send_wr *first, struct send_wr **bad)
{
	struct cq *cq = qp->send_cq;
	last_post.enter_ns = now_ns();
	while (now_ns() - last_post.enter_ns < post_cost_ns)
		;
	for (struct send_wr *wr = first; wr; wr = wr->next) {
		uint32_t bytes = 0;
		for (int i = 0; i < wr->num_sge; i++)
			bytes += wr->sg_list[i].length;
		uint64_t now = now_ns();
		wire_free_ns = (wire_free_ns > now ? wire_free_ns : now) + bytes / BYTES_PER_NS;
		last_post.done_ns = wire_free_ns + base_rtt_ns;
		if (wr->send_flags & SIGNALED)
			cq->ring[cq->tail++ % DEPTH] = (struct completion){ last_post.done_ns, wr->wr_id, bytes, qp->qp_num,
				wr->opcode == FETCH_ADD ? 4 : 1 };
	}
	(void)bad;
	last_post.exit_ns = now_ns();
	return 0;
}

__attribute__((noinline)) int mlx5_poll_cq_v1(void *queue, int room, struct wc *out)
{
	struct cq *cq = queue;
	uint64_t now = now_ns();
	int n = 0;
	for (; n < room && cq->head < cq->tail && cq->ring[cq->head % DEPTH].done_ns <= now; n++, cq->head++) {
		struct completion *c = &cq->ring[cq->head % DEPTH];
		memset(&out[n], 0, sizeof out[n]);
		out[n].wr_id = c->wr_id, out[n].opcode = c->opcode, out[n].byte_len = c->bytes, out[n].qp_num = c->qp;
	}
	return n;
}
