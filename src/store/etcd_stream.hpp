// etcd stream: a watch that goes on from its revision, over any number of connections.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "manyworlds/coro/task.hpp"
#include "store/etcd_gateway.hpp"
#include "store/etcd_wire.hpp"

namespace manyworlds::inline v0::detail::etcd {

/// Tells the changes of a range of keys. Thread: the gateway's.
class watch_stream {
 public:
  /// `from` is the first revision that is told; 0 for what comes after etcd has begun.
  watch_stream(gateway& gateway, std::string key, std::string end, std::int64_t from)
      : gateway_(gateway), key_(std::move(key)), end_(std::move(end)), from_(from) {}

  /// What one `next` tells: changes, or that some were compacted and are not told.
  struct told {
    bool is_begun = false;
    bool is_compacted = false;
    std::int64_t revision = 0;
    std::vector<etcd_change> changes;
  };
  /// Waits for news. While etcd does not answer it tries again. Errors: store_error
  /// (`refused`, `protocol`).
  task<told> next();

  /// The first revision that was not told.
  [[nodiscard]] std::int64_t from() const noexcept { return from_; }
  /// Tells from another revision on.
  void restart(std::int64_t from) {
    from_ = from;
    stream_.reset();
  }

 private:
  void open();
  /// Takes one message; nothing if it tells nothing to the user.
  std::optional<told> take(const std::string& line);
  /// Asks something small of the cluster, so that an endpoint that answers is found.
  task<void> find_endpoint();

  gateway& gateway_;
  const std::string key_;
  const std::string end_;
  std::int64_t from_;
  std::unique_ptr<http_stream> stream_;
  std::size_t endpoint_ = 0;
  std::string token_;
  /// Connections in a row that told nothing.
  int fruitless_ = 0;
};

}  // namespace manyworlds::inline v0::detail::etcd
