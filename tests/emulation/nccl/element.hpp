// Elements: their sizes and how they are reduced.
#pragma once

#include <nccl.h>

#include <cstddef>

namespace nccl_emulation {

std::size_t size_of(ncclDataType_t type);

/// into[i] = into[i] op from[i]; `op` is sum, prod, max or min.
void combine(void* into, const void* from, std::size_t count, ncclDataType_t type,
             ncclRedOp_t op);

/// into[i] = into[i] / divisor, as ncclAvg ends.
void divide(void* into, std::size_t count, ncclDataType_t type, int divisor);

/// into[i] = into[i] * *scalar, as an operator of ncclRedOpCreatePreMulSum begins.
void scale(void* into, std::size_t count, ncclDataType_t type, const void* scalar);

}  // namespace nccl_emulation
