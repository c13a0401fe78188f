/* What liburing's configure finds with kernel headers 5.6 or later and glibc 2.28 or later. */
#define CONFIG_HAVE_KERNEL_RWF_T
#define CONFIG_HAVE_KERNEL_TIMESPEC
#define CONFIG_HAVE_OPEN_HOW
#define CONFIG_HAVE_STATX
#define CONFIG_HAVE_GLIBC_STATX
