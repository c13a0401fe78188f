// etcd wait: what operations that wait for keys watch, and have seen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "manyworlds/coro/event.hpp"
#include "store/etcd_client.hpp"

namespace manyworlds::inline v0::detail {

/// One range that one operation waits for. Lifetime: both the watch and `changed` know
/// it until it ends.
struct etcd_client::subscription {
  subscription(etcd_client& o, std::shared_ptr<shared_watch> w, std::string b,
               std::string e, event& c);
  ~subscription();

  [[nodiscard]] bool contains(const std::string& name) const {
    return name >= begin && (end.empty() ? name == begin : name < end);
  }

  etcd_client& owner;
  std::shared_ptr<shared_watch> watch;
  const std::string begin;
  const std::string end;
  event& changed;
  /// A key of the range was set, and may be erased since.
  bool was_set = false;
};

/// A watch that several operations share, and that ends with the last of them.
struct etcd_client::shared_watch {
  shared_watch(etcd::gateway& gateway, std::string b, std::string e, std::int64_t from)
      : name(b + e), stream(gateway, std::move(b), std::move(e), from) {}

  const std::string name;
  etcd::watch_stream stream;
  std::vector<subscription*> subscriptions;
  event unused;
  bool has_ended = false;
};

/// What a wait has seen of its keys.
struct etcd_client::wait {
  explicit wait(std::size_t keys) : missing(keys, true), subscriptions(keys) {}

  std::int64_t revision = 0;
  std::vector<bool> missing;
  std::vector<std::string> values;
  std::vector<std::unique_ptr<subscription>> subscriptions;
  event changed;
};

}  // namespace manyworlds::inline v0::detail
