/* The part of rdma-core's public verbs structures that the collector reads, at their real offsets (x86-64). */
#pragma once
#include <stddef.h>
#include <stdint.h>
struct sge { uint64_t addr; uint32_t length, lkey; };
struct send_wr {
	uint64_t wr_id;
	struct send_wr *next;
	struct sge *sg_list;
	int num_sge, opcode;
	unsigned send_flags, imm;
	uint64_t remote_addr;
	uint8_t rest[80];
};
struct wc { uint64_t wr_id; int status, opcode; uint32_t vendor_err, byte_len, imm, qp_num, src_qp; uint8_t rest[12]; };
struct qp { void *context, *qp_context, *pd, *send_cq, *recv_cq, *srq; uint32_t handle, qp_num; uint8_t rest[104]; };
_Static_assert(offsetof(struct send_wr, remote_addr) == 40 && sizeof(struct send_wr) == 128, "ibv_send_wr");
_Static_assert(sizeof(struct wc) == 48 && offsetof(struct wc, qp_num) == 28, "ibv_wc");
_Static_assert(offsetof(struct qp, qp_num) == 52 && sizeof(struct qp) == 160, "ibv_qp");
enum { WRITE = 0, WRITE_IMM = 1, FETCH_ADD = 6, SIGNALED = 2 };

/* The truth of the last post, by the provider's own clock readings (CLOCK_BOOTTIME, as the collector's). */
struct truth { uint64_t enter_ns, exit_ns, done_ns; };
extern __thread struct truth last_post;
extern uint64_t post_cost_ns, base_rtt_ns;
uint64_t now_ns(void);
struct qp *new_qp(uint32_t number);
int mlx5_post_send(struct qp *, struct send_wr *, struct send_wr **bad);
int mlx5_poll_cq_v1(void *cq, int room, struct wc *);
