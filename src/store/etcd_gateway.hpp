// etcd gateway: requests to a cluster, at the endpoint that answers, with its token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/store/etcd_store.hpp"
#include "store/etcd_http.hpp"
#include "store/store_health.hpp"
#include "store/store_thread.hpp"
#include "store/turnstile.hpp"

namespace manyworlds::inline v0::detail::etcd {

/// One operation that is under way, and what its error tells.
struct gateway_call {
  gateway_call(store_operation o, std::vector<std::string> k, duration limit,
               time_point now)
      : operation(o), keys(std::move(k)), began(now), deadline(later(now, limit)) {}

  store_operation operation;
  std::vector<std::string> keys;
  time_point began;
  time_point deadline;
  /// After this time the next endpoint is asked, if that is before `answer_limit`.
  duration longest_attempt = duration::max();
  /// A request that must not be sent twice may have reached etcd, which did not answer.
  bool may_have_happened = false;
};

/// Asks the endpoints of one cluster in turn. Thread: that of `home()`, but for the
/// constructor, `address` and `trouble`.
class gateway {
 public:
  gateway(const std::string& endpoints, const etcd_store_options& options);

  [[nodiscard]] store_thread& home() noexcept { return thread_; }
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] std::string trouble() const { return health_.trouble(); }
  [[nodiscard]] store_health& health() noexcept { return health_; }
  [[nodiscard]] const etcd_store_options& options() const noexcept { return options_; }

  /// Posts to the path and returns what etcd answers, by the deadline of the call. A
  /// request that may not be repeated is sent once. Errors: store_error.
  task<std::string> ask(gateway_call& call, std::string path, std::string body,
                        bool may_repeat);
  /// Returns the version of the endpoint that is asked. Precondition: it has answered.
  [[nodiscard]] const std::string& version() const {
    return endpoints_[current_].version;
  }
  /// Throws the error of a call.
  [[noreturn]] void fail(const gateway_call& call, store_error_kind kind,
                         std::string reason) const;
  [[noreturn]] void fail(const gateway_call& call, store_error_kind kind,
                         std::vector<std::string> keys, std::string reason) const;

  /// The endpoint that is asked now, and the request for a stream there.
  [[nodiscard]] std::size_t current() const noexcept { return current_; }
  [[nodiscard]] http_client& client() noexcept { return client_; }
  [[nodiscard]] http_request stream_request(std::string path, std::string body) const;
  /// Notes what a stream was told of its token, which is renewed then.
  void forget_token(const std::string& token) {
    if (token == token_) token_.clear();
  }

 private:
  struct endpoint {
    std::string url;
    std::string version;  ///< empty: it was not asked yet
  };
  enum class verdict : unsigned char {
    good,
    again,     ///< the endpoint does not answer now
    wrong,     ///< no etcd, or not for us
    bad_call,  ///< etcd refuses the request
    token,     ///< the token is not valid
  };
  struct answer {
    verdict is = verdict::good;
    store_error_kind error = store_error_kind::unreachable;
    std::string text;  ///< the body, or the reason
    bool was_sent = false;
  };

  task<answer> attempt(gateway_call& call, std::string path, std::string body);
  task<answer> probe(endpoint& at, duration limit);
  task<answer> authenticate(endpoint& at, duration limit);
  task<http_reply> exchange(std::string url, std::string body, std::string token,
                            duration limit);
  [[nodiscard]] answer judge(const endpoint& at, http_reply reply) const;
  [[nodiscard]] answer judge_error(const endpoint& at, const http_reply& reply) const;
  [[nodiscard]] duration time_for(const gateway_call& call, std::size_t bytes) const;

  const etcd_store_options options_;
  std::vector<endpoint> endpoints_;
  std::string address_;
  http_client client_;
  std::size_t current_ = 0;
  std::string token_;
  bool has_no_users_ = false;
  turnstile places_;
  turnstile authenticating_{1};
  // It ends before the rest, which its tasks use.
  store_thread thread_;
  store_health health_;
};

/// The time that a question may take beyond the limit of the wait that it ends.
inline constexpr duration last_question = std::chrono::milliseconds(500);

}  // namespace manyworlds::inline v0::detail::etcd
