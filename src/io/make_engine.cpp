#include <cerrno>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include "io/engines.hpp"
#include "manyworlds/detail/config.hpp"

namespace manyworlds::inline v0::detail {

namespace {

std::string describe_refusal(int refusal) {
  std::string text = "io_uring is refused here (";
  text += std::generic_category().message(refusal) + ")";
  switch (refusal) {
    case EPERM:
    case ENOSYS:
    case EACCES:
      return text +
             "; usual causes: a seccomp filter (the default profiles of Docker and "
             "Kubernetes block it), or sysctl kernel.io_uring_disabled";
    case ENOMEM:
      return text +
             "; usual causes: the limit of locked memory (ulimit -l), which counts rings "
             "before Linux 5.12, or a memory limit of the control group";
    default:
      return text +
             "; usual causes: a sandbox such as gVisor, or a kernel before Linux 5.11";
  }
}

}  // namespace

#if !MANYWORLDS_HAS_IO_URING
std::unique_ptr<engine> make_io_uring_engine(int& refusal) {
  refusal = EOPNOTSUPP;
  return nullptr;
}
#endif

engine_choice make_engine(engine_kind kind) {
  if (kind == engine_kind::epoll) return {make_epoll_engine(), {}};
  int refusal = 0;
  if (auto ring = make_io_uring_engine(refusal)) return {std::move(ring), {}};
  const std::string reason = MANYWORLDS_HAS_IO_URING
                                 ? describe_refusal(refusal)
                                 : "io_uring was left out when this library was built";
  if (kind == engine_kind::io_uring) {
    throw std::system_error(refusal, std::generic_category(), reason);
  }
  return {make_epoll_engine(), reason + "; using epoll"};
}

int io_uring_refusal() noexcept {
  int refusal = 0;
  try {
    const auto probe = make_io_uring_engine(refusal);
  } catch (const std::system_error& exhausted) {
    return exhausted.code().value();
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  return refusal;
}

}  // namespace manyworlds::inline v0::detail
