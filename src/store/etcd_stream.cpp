#include "store/etcd_features.hpp"

#if MANYWORLDS_HAS_ETCD

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "manyworlds/coro/sleep.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "store/etcd_stream.hpp"

namespace manyworlds::inline v0::detail::etcd {

namespace {

/// How long one question may take by which an endpoint is found; then the next is asked.
constexpr duration finding_limit = std::chrono::seconds(5);

}  // namespace

void watch_stream::open() {
  endpoint_ = gateway_.current();
  http_request r = gateway_.stream_request("/v3/watch", watch_body(key_, end_, from_));
  token_ = r.token;
  stream_ = std::make_unique<http_stream>(gateway_.client(), std::move(r));
}

task<void> watch_stream::find_endpoint() {
  range_request small;
  small.key = key_;
  small.count_only = true;
  for (;;) {
    gateway_call call(store_operation::watch, {}, finding_limit, gateway_.home().now());
    bool is_lasting = false;
    std::exception_ptr error;
    try {
      co_await gateway_.ask(call, "/v3/kv/range", range_body(small), true);
      co_return;
    } catch (const store_error& e) {
      is_lasting = e.kind() != store_error_kind::unreachable;
      error = std::current_exception();
    }
    if (is_lasting) std::rethrow_exception(error);
  }
}

std::optional<watch_stream::told> watch_stream::take(const std::string& line) {
  watch_answer answer = read_watch(line);
  fruitless_ = 0;
  told news;
  news.revision = answer.revision;
  if (answer.compact_revision > 0) {
    // What is at that revision and after it can still be told.
    restart(std::max(answer.compact_revision, from_));
    news.is_compacted = true;
    return news;
  }
  if (answer.is_cancelled) {
    gateway_.forget_token(token_);
    throw bad_answer(answer.reason.empty() ? "it has ended the watch" : answer.reason);
  }
  if (answer.is_created) {
    if (from_ == 0) from_ = answer.revision + 1;
    news.is_begun = true;
    return news;
  }
  if (answer.changes.empty()) {
    // A notice of progress: all before it was told.
    from_ = std::max(from_, answer.revision + 1);
    return std::nullopt;
  }
  from_ = std::max(from_, answer.changes.back().entry.mod_revision + 1);
  news.changes = std::move(answer.changes);
  return news;
}

task<watch_stream::told> watch_stream::next() {
  const duration silence = gateway_.options().probe_interval;
  for (;;) {
    if (!stream_) open();
    std::optional<std::string> line = co_await stream_->next(silence);
    std::string trouble;
    if (line) {
      try {
        std::optional<told> news = take(*line);
        if (news) co_return std::move(*news);
        continue;
      } catch (const bad_answer& bad) {
        trouble = bad.what();
      }
    } else if (stream_->has_ended()) {
      http_reply& end = stream_->end();
      const error_answer said = read_error(end.body);
      trouble = said.message.empty() ? end.reason : said.message;
      if (end.status == 401 || end.status == 400) gateway_.forget_token(token_);
    } else {
      // A server that was stopped keeps its connections.
      co_await find_endpoint();
      if (gateway_.current() != endpoint_) stream_.reset();
      continue;
    }
    stream_.reset();
    if (trouble.find("permission denied") != trouble.npos ||
        trouble.find("PermissionDenied") != trouble.npos) {
      gateway_call call(store_operation::watch, {}, duration::zero(),
                        gateway_.home().now());
      gateway_.fail(call, store_error_kind::refused, trouble);
    }
    gateway_.health().note_failure("a watch has ended: " + trouble);
    if (fruitless_++ > 0) {
      const duration pause = gateway_.options().first_pause * fruitless_;
      co_await sleep_for(std::min(pause, gateway_.options().longest_pause));
    }
    co_await find_endpoint();
  }
}

}  // namespace manyworlds::inline v0::detail::etcd

#endif  // MANYWORLDS_HAS_ETCD
