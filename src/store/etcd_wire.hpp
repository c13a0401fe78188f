// etcd wire: requests and answers of etcd's JSON gateway.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/store/etcd_store.hpp"

namespace manyworlds::inline v0::detail::etcd {

/// What answers is no answer of etcd's.
class bad_answer : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

[[nodiscard]] std::string to_base64(std::string_view bytes);
/// Returns nothing if it is no base64.
[[nodiscard]] std::optional<std::string> from_base64(std::string_view text);

/// The end of the range of all keys that begin with the prefix.
[[nodiscard]] std::string end_of_prefix(std::string prefix);

/// What a range asks for beside its keys.
struct range_request {
  std::string key;
  std::string end;  ///< empty: that key alone
  std::int64_t limit = 0;
  std::int64_t revision = 0;
  bool keys_only = false;
  bool count_only = false;
  bool oldest_first = false;  ///< in the order in which the keys were made
};
[[nodiscard]] std::string range_body(const range_request& r);
[[nodiscard]] std::string put_body(std::string_view key, std::string_view value,
                                   std::int64_t lease);
[[nodiscard]] std::string delete_body(std::string_view key);
[[nodiscard]] std::string compare_body(etcd_target target, etcd_relation relation,
                                       std::string_view key, std::int64_t number,
                                       std::string_view value);
[[nodiscard]] std::string watch_body(std::string_view key, std::string_view end,
                                     std::int64_t revision);
[[nodiscard]] std::string user_body(const std::string& user, const std::string& password);

/// The bodies of a transaction's parts, joined.
struct transaction_body {
  void compare(const std::string& body) { add(compares, body); }
  void then_range(const std::string& body) { add_step(thens, "request_range", body); }
  void then_put(const std::string& body) { add_step(thens, "request_put", body); }
  void then_delete(const std::string& body) {
    add_step(thens, "request_delete_range", body);
  }
  void else_range(const std::string& body) { add_step(elses, "request_range", body); }
  void else_put(const std::string& body) { add_step(elses, "request_put", body); }
  void else_delete(const std::string& body) {
    add_step(elses, "request_delete_range", body);
  }
  [[nodiscard]] std::string text() const;

  std::string compares;
  std::string thens;
  std::string elses;

 private:
  static void add(std::string& list, const std::string& body);
  static void add_step(std::string& list, const char* kind, const std::string& body);
};

struct range_answer {
  std::int64_t revision = 0;
  std::int64_t count = 0;
  bool has_more = false;
  std::vector<etcd_entry> entries;
};
struct transaction_answer {
  std::int64_t revision = 0;
  bool succeeded = false;
  /// One for each step; of a delete `count` is the number of keys, and `entries` what
  /// they were.
  std::vector<range_answer> steps;
};
struct watch_answer {
  std::int64_t revision = 0;
  bool is_created = false;
  bool is_cancelled = false;
  std::int64_t compact_revision = 0;
  std::string reason;
  std::vector<etcd_change> changes;
};
struct lease_answer {
  std::int64_t id = 0;
  std::int64_t seconds = 0;  ///< 0: the lease is gone
};
struct error_answer {
  std::int64_t code = 0;  ///< gRPC's
  std::string message;
};
/// Says whether an error's text is that a request names a lease which etcd does not know.
[[nodiscard]] inline bool says_lease_is_gone(std::string_view message) noexcept {
  return message.find("lease not found") != message.npos;
}

// Each reads one answer. Errors: `bad_answer`. All that is missing is 0, false or empty,
// since the gateway leaves those out.
[[nodiscard]] range_answer read_range(std::string_view text);
[[nodiscard]] range_answer read_delete(std::string_view text);
[[nodiscard]] transaction_answer read_transaction(std::string_view text);
[[nodiscard]] watch_answer read_watch(std::string_view line);
[[nodiscard]] lease_answer read_lease(std::string_view text);
[[nodiscard]] lease_answer read_keep_alive(std::string_view text);
[[nodiscard]] std::string read_token(std::string_view text);
/// Returns the server's version; nothing if the text is no answer of an etcd.
[[nodiscard]] std::optional<std::string> read_version(std::string_view text);
/// Returns what an answer with an error says; an empty message if it is none of etcd's.
[[nodiscard]] error_answer read_error(std::string_view text);

}  // namespace manyworlds::inline v0::detail::etcd
