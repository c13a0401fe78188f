#include "store/etcd_features.hpp"

#if MANYWORLDS_HAS_ETCD

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <stdexcept>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "store/etcd_gateway.hpp"
#include "store/etcd_wire.hpp"

namespace manyworlds::inline v0::detail::etcd {

namespace {

constexpr duration probe_limit = std::chrono::milliseconds(1500);
/// Large bodies may take longer, at this many bytes in a second.
constexpr std::size_t slowest_bytes = std::size_t{4} << 20;
// Codes of gRPC.
constexpr std::int64_t deadline_exceeded = 4;
constexpr std::int64_t permission_denied = 7;
constexpr std::int64_t resource_exhausted = 8;
constexpr std::int64_t unavailable = 14;
constexpr std::int64_t unauthenticated = 16;

[[noreturn]] void refuse_endpoint(const std::string& endpoint) {
  throw std::invalid_argument(
      "etcd endpoint \"" + endpoint +
      "\": give host:port or https://host:port, several parted by commas");
}

/// Returns the URL of one endpoint.
std::string url_of(const std::string& endpoint, bool is_secure) {
  std::string_view rest = endpoint;
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (!rest.starts_with(scheme)) continue;
    is_secure = scheme == "https://";
    rest.remove_prefix(scheme.size());
    break;
  }
  while (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t colon = rest.rfind(':');
  unsigned port = 0;
  if (colon == rest.npos || colon == 0) refuse_endpoint(endpoint);
  const auto parsed =
      std::from_chars(rest.data() + colon + 1, rest.data() + rest.size(), port);
  const bool is_port = parsed.ec == std::errc() &&
                       parsed.ptr == rest.data() + rest.size() && port > 0 &&
                       port < 65536;
  const bool is_host = rest.find_first_of("/@?# \t\r\n\"\\") == rest.npos;
  if (!is_port || !is_host) refuse_endpoint(endpoint);
  return (is_secure ? "https://" : "http://") + std::string(rest);
}

/// Returns what people can read of an answer's first bytes.
std::string glimpse_of(std::string_view text) {
  std::string shown;
  for (const char c : text.substr(0, 60)) shown += c >= ' ' && c <= '~' ? c : ' ';
  while (shown.ends_with(' ')) shown.pop_back();
  return shown.empty() ? "nothing" : "\"" + shown + "\"";
}

/// Says why a version is too old; empty if it is not.
std::string why_too_old(std::string_view version) {
  unsigned major = 0;
  unsigned minor = 0;
  const char* const end = version.data() + version.size();
  const auto first = std::from_chars(version.data(), end, major);
  if (first.ptr != end && *first.ptr == '.') std::from_chars(first.ptr + 1, end, minor);
  if (major < 3) return "which speaks version 2 alone";
  if (major == 3 && minor < 3) return "the gateway of which is /v3alpha";
  if (major == 3 && minor == 3) return "the gateway of which is /v3beta";
  return {};
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace

gateway::gateway(const std::string& endpoints, const etcd_store_options& options)
    : options_(options),
      client_({options.ca_file, options.certificate_file, options.key_file}),
      places_(std::max<std::size_t>(options.connections, 1)),
      thread_("mw-etcd-store", client_),
      health_(thread_) {
  const bool is_secure = !options.ca_file.empty() || !options.certificate_file.empty() ||
                         !options.key_file.empty();
  for (std::size_t at = 0; at <= endpoints.size();) {
    const std::size_t comma = std::min(endpoints.find(',', at), endpoints.size());
    endpoints_.push_back({url_of(endpoints.substr(at, comma - at), is_secure), ""});
    at = comma + 1;
  }
  address_ = "etcd://" + endpoints;
}

void gateway::fail(const gateway_call& call, store_error_kind kind,
                   std::string reason) const {
  fail(call, kind, call.keys, std::move(reason));
}

void gateway::fail(const gateway_call& call, store_error_kind kind,
                   std::vector<std::string> keys, std::string reason) const {
  store_failure failure(kind, address_, call.operation, std::move(keys),
                        thread_.now() - call.began, std::move(reason));
  failure.may_have_happened = call.may_have_happened;
  throw store_error(std::move(failure));
}

duration gateway::time_for(const gateway_call& call, std::size_t bytes) const {
  const duration for_bytes =
      options_.answer_limit + std::chrono::seconds(bytes / slowest_bytes);
  const duration longest =
      std::max(std::min(for_bytes, call.longest_attempt), last_question);
  if (call.deadline == time_point::max()) return longest;
  return std::clamp(call.deadline - thread_.now(), last_question, longest);
}

http_request gateway::stream_request(std::string path, std::string body) const {
  http_request r;
  r.url = endpoints_[current_].url + path;
  r.body = std::move(body);
  r.token = token_;
  r.connect_limit = options_.connect_limit;
  // A value and its key in base64, and what other changes come with them.
  r.most_bytes = 4 * options_.limits.request_bytes;
  return r;
}

task<http_reply> gateway::exchange(std::string url, std::string body, std::string token,
                                   duration limit) {
  http_request r;
  r.url = std::move(url);
  r.body = std::move(body);
  r.token = std::move(token);
  r.connect_limit = std::min(options_.connect_limit, limit);
  r.limit = limit;
  r.most_bytes = 2 * options_.limits.request_bytes;
  const store_health::question asked(health_);
  http_exchange exchanged(client_, std::move(r));
  co_return co_await exchanged;
}

/// Asks whether an endpoint is an etcd with a gateway that we speak.
task<gateway::answer> gateway::probe(endpoint& at, duration limit) {
  limit = std::min(limit, probe_limit);
  http_reply reply = co_await exchange(at.url + "/version", "", "", limit);
  if (reply.trouble != http_trouble::none) co_return judge(at, std::move(reply));
  std::optional<std::string> version = read_version(reply.body);
  answer wrong;
  wrong.is = verdict::wrong;
  wrong.error = store_error_kind::protocol;
  if (!version) {
    wrong.text = fmt::format("what answers at {} is no etcd: HTTP {} with {}", at.url,
                             reply.status, glimpse_of(reply.body));
    co_return wrong;
  }
  if (const std::string why = why_too_old(*version); !why.empty()) {
    wrong.text = fmt::format("at {} is etcd {}, {}: 3.4 or later is needed", at.url,
                             glimpse_of(*version), why);
    co_return wrong;
  }
  reply = co_await exchange(at.url + "/v3/maintenance/status", "{}", "", limit);
  if (reply.trouble != http_trouble::none) co_return judge(at, std::move(reply));
  if (reply.status == 404) {
    wrong.text = fmt::format("etcd {} at {} has no JSON gateway (--enable-grpc-gateway)",
                             *version, at.url);
    co_return wrong;
  }
  at.version = std::move(*version);
  co_return answer();
}

task<gateway::answer> gateway::authenticate(endpoint& at, duration limit) {
  const turnstile::place alone = co_await authenticating_.enter();
  if (!token_.empty() || has_no_users_) co_return answer();
  http_reply reply =
      co_await exchange(at.url + "/v3/auth/authenticate",
                        user_body(options_.user, options_.password), "", limit);
  answer judged = judge(at, std::move(reply));
  if (judged.is == verdict::good) {
    try {
      token_ = read_token(judged.text);
    } catch (const bad_answer& bad) {
      judged.is = verdict::wrong;
      judged.error = store_error_kind::protocol;
      judged.text = fmt::format("the token of {} cannot be used: {}", at.url, bad.what());
    }
    co_return judged;
  }
  if (has(judged.text, "authentication is not enabled")) {
    has_no_users_ = true;
    co_return answer();
  }
  if (judged.is == verdict::bad_call)
    judged.text =
        fmt::format("etcd does not take user \"{}\": {}", options_.user, judged.text);
  co_return judged;
}

gateway::answer gateway::judge(const endpoint& at, http_reply reply) const {
  answer a;
  a.was_sent = reply.was_sent;
  switch (reply.trouble) {
    case http_trouble::none:
      if (reply.status != 200) return judge_error(at, reply);
      a.text = std::move(reply.body);
      return a;
    case http_trouble::unreachable:
      a.is = verdict::again;
      a.text = fmt::format("{}: {}", at.url, reply.reason);
      return a;
    case http_trouble::certificate:
      a.is = verdict::wrong;
      a.error = store_error_kind::refused;
      a.text = fmt::format("the certificates of {} and of this client do not agree: {}",
                           at.url, reply.reason);
      return a;
    case http_trouble::not_http:
      a.is = verdict::wrong;
      a.error = store_error_kind::protocol;
      a.text = fmt::format("what answers at {} is no etcd: {}", at.url, reply.reason);
      return a;
    case http_trouble::too_long:
      break;
  }
  a.is = verdict::bad_call;
  a.error = store_error_kind::too_large;
  a.text = fmt::format("{}: {}", at.url, reply.reason);
  return a;
}

/// Says what an answer means that is none of success.
gateway::answer gateway::judge_error(const endpoint& at, const http_reply& reply) const {
  const error_answer error = read_error(reply.body);
  const std::string& message = error.message;
  answer a;
  a.was_sent = true;
  a.text = fmt::format("{}: {}", at.url, message);
  a.is = verdict::bad_call;
  a.error = store_error_kind::refused;
  if (message.empty()) {
    a.is = verdict::wrong;
    a.error = store_error_kind::protocol;
    a.text = fmt::format("what answers at {} is no etcd: HTTP {} with {}", at.url,
                         reply.status, glimpse_of(reply.body));
  } else if (error.code == unauthenticated || has(message, "invalid auth token") ||
             has(message, "revision in header is old") ||
             (has(message, "user name is empty") && !options_.user.empty())) {
    a.is = verdict::token;
  } else if (has(message, "user name is empty")) {
    a.text = at.url + ": etcd demands a user and a password";
  } else if (has(message, "too large") || has(message, "larger than max") ||
             has(message, "too many operations")) {
    a.error = store_error_kind::too_large;
  } else if (error.code == permission_denied || has(message, "database space exceeded")) {
    a.error = store_error_kind::refused;
  } else if (error.code == unavailable || error.code == deadline_exceeded ||
             error.code == resource_exhausted || has(message, "leader changed") ||
             has(message, "request timed out") || has(message, "server stopped") ||
             reply.status >= 500) {
    a.is = verdict::again;
    a.error = store_error_kind::unreachable;
  }
  return a;
}

/// Asks the current endpoint once, with all that has to be said before.
task<gateway::answer> gateway::attempt(gateway_call& call, std::string path,
                                       std::string body) {
  endpoint& at = endpoints_[current_];
  const duration limit = time_for(call, body.size());
  if (at.version.empty()) {
    answer probed = co_await probe(at, limit);
    if (probed.is != verdict::good) {
      probed.was_sent = false;
      co_return probed;
    }
  }
  if (!options_.user.empty() && token_.empty() && !has_no_users_) {
    answer known = co_await authenticate(at, limit);
    if (known.is != verdict::good) {
      known.was_sent = false;
      co_return known;
    }
  }
  const std::string token = token_;
  http_reply reply = co_await exchange(at.url + path, std::move(body), token, limit);
  answer judged = judge(at, std::move(reply));
  if (judged.is == verdict::token) forget_token(token);
  // Another server may come to this address.
  if (judged.is == verdict::again || judged.is == verdict::wrong) at.version.clear();
  co_return judged;
}

task<std::string> gateway::ask(gateway_call& call, std::string path, std::string body,
                               bool may_repeat) {
  std::optional<turnstile::place> place;
  // A lease that is asked about too late is lost: it waits for no other request.
  if (call.operation != store_operation::lease) {
    turnstile::place entered = co_await places_.enter();
    place.emplace(std::move(entered));
  }
  bool has_new_token = false;
  std::size_t tries = 0;
  std::size_t wrong = 0;
  duration pause = options_.first_pause;
  for (;;) {
    const std::size_t asked = current_;
    call.may_have_happened = !may_repeat;
    answer a = co_await attempt(call, path, body);
    call.may_have_happened = false;
    if (a.is == verdict::good) {
      health_.note_answer();
      co_return std::move(a.text);
    }
    if (a.is == verdict::token && !std::exchange(has_new_token, true)) continue;
    if (a.is == verdict::token || a.is == verdict::bad_call) {
      // It answers, if not as wished.
      health_.note_answer();
      fail(call, a.is == verdict::token ? store_error_kind::refused : a.error,
           std::move(a.text));
    }
    health_.note_failure(a.text);
    if (a.was_sent && !may_repeat) {
      call.may_have_happened = true;
      fail(call, store_error_kind::unreachable, std::move(a.text));
    }
    if (current_ == asked) current_ = (asked + 1) % endpoints_.size();
    wrong = a.is == verdict::wrong ? wrong + 1 : 0;
    if (wrong == endpoints_.size()) fail(call, a.error, std::move(a.text));
    if (thread_.now() >= call.deadline)
      fail(call, store_error_kind::unreachable, std::move(a.text));
    if (++tries % endpoints_.size() != 0) continue;
    co_await sleep_until(std::min(call.deadline, later(thread_.now(), pause)));
    pause = std::min(2 * pause, options_.longest_pause);
  }
}

}  // namespace manyworlds::inline v0::detail::etcd

#endif  // MANYWORLDS_HAS_ETCD
