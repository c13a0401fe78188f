/* What liburing's configure writes with kernel headers 5.6 or later. */
#ifndef LIBURING_COMPAT_H
#define LIBURING_COMPAT_H

#include <linux/openat2.h>
#include <linux/time_types.h>

#endif
