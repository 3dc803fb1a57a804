/* SPDX-License-Identifier: MIT */
/*
 * A filter for tests: counts reads, shows how many were under way together, and can hold them until
 * a number of them is there.
 */
#ifndef UEXT4_TESTS_GATE_H
#define UEXT4_TESTS_GATE_H

#include "block/device.h"

struct gate;

/* Stacks on a device, which it then owns. */
struct device *gate_open(struct device *lower);

/*
 * From now on reads wait until `count` of them are under way, and then go on together; 0 and 1 let
 * all through. A read that waits in vain for 10 seconds goes on, and gate_timeouts counts it.
 */
void gate_hold(struct device *gate, unsigned int count);

/* Reads from `offset` on, `length` bytes, fail with `error` (negative); 0 ends that. */
void gate_fail(struct device *gate, uint64_t offset, uint64_t length, int error);

unsigned int gate_reads(struct device *gate);
unsigned int gate_max_in_flight(struct device *gate);
unsigned int gate_timeouts(struct device *gate);

#endif
