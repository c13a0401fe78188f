// etcd context: a job's context in etcd, for masters on several hosts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/store/etcd_store.hpp"
#include "mpmd/context_store.hpp"

namespace manyworlds::inline v0::detail {

/// Returns the options of the store in which a job's context and its master's seat lie.
/// All its keys are under "manyworlds/graph/JOB/".
[[nodiscard]] etcd_store_options graph_store_options(std::string_view job,
                                                     etcd_store_options more = {});

/// The most bytes that keys and values of one context may have: what a new master reads
/// back within its limit, with room for a slow etcd.
inline constexpr std::uint64_t etcd_context_most_bytes = std::uint64_t{32} << 20;

/// Keeps each value under a key of its own, and beside them the term and a head. The head
/// has the sum of the checksums of all values. So a value that was changed or erased by
/// another hand is `damaged`.
///
///     etcd_store store("10.0.0.1:2379", graph_store_options("serving"));
///     etcd_context kept(store);
///     const std::uint64_t mine = co_await kept.take_term(co_await kept.term());
///     co_await kept.write(mine, {{"decode.1", "incarnation 2 on node 0"}});
///
/// A write is one transaction that compares the revisions at which the term was taken and
/// the head was last written. So a deposed master writes nothing, and of two attempts at
/// one write, the answer of which was lost, one takes effect.
///
/// The context is bounded by its values; etcd itself keeps what was overwritten until it
/// is compacted, which is its operator's to order (--auto-compaction-retention). A write
/// with which the context would exceed `etcd_context_most_bytes` is `full`. Lifetime: the
/// store outlives this.
class etcd_context final : public context_store {
 public:
  explicit etcd_context(etcd_store& store, duration limit = std::chrono::seconds(5))
      : store_(store), limit_(limit) {}

  task<std::uint64_t> term() override;
  task<std::uint64_t> take_term(std::uint64_t seen) override;
  task<context_values> load() override;
  task<void> write(std::uint64_t term, std::vector<context_write> changes) override;
  [[nodiscard]] std::string where() const override { return store_.address(); }

 private:
  struct known_value {
    std::uint64_t checksum = 0;
    std::uint64_t bytes = 0;  ///< of its key, too
  };
  /// What is known of the keys; enough to compare and to write the next head.
  struct knowledge {
    std::uint64_t term = 0;
    std::int64_t term_revision = 0;
    std::uint64_t sequence = 0;
    std::int64_t head_revision = 0;
    std::uint64_t sum = 0;
    std::map<std::string, known_value, std::less<>> values;
    std::uint64_t bytes = 0;  ///< of all keys and values
  };

  task<context_values> read_all();
  task<etcd_outcome> commit(etcd_transaction transaction);
  [[nodiscard]] knowledge learn(etcd_listing listing, context_values& values) const;
  static void note(knowledge& of, const context_write& change);
  [[nodiscard]] static std::uint64_t bytes_after(
      const knowledge& now,
      const std::map<std::string_view, const context_write*>& changes);
  [[noreturn]] void refuse(context_trouble trouble, const std::string& text) const;
  void compare_terms(std::uint64_t known, std::uint64_t ours) const;

  etcd_store& store_;
  const duration limit_;
  /// Nothing where an answer was lost, or another has written.
  std::optional<knowledge> known_;
};

}  // namespace manyworlds::inline v0::detail
