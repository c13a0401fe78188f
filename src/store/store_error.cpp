#include "manyworlds/store/store_error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "duration_text.hpp"

namespace manyworlds::inline v0 {

using namespace detail;

namespace {

constexpr std::size_t shown_keys = 8;
constexpr std::size_t shown_bytes = 96;

// Keys are bytes, and unprintable ones must not reach a terminal.
void append_quoted(std::string& out, std::string_view key) {
  out += '"';
  for (const char c : key.substr(0, shown_bytes)) {
    if (c >= ' ' && c <= '~' && c != '"' && c != '\\') {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  out += key.size() > shown_bytes ? "...\"" : "\"";
}

std::string quoted_list(const std::vector<std::string>& keys) {
  std::string out;
  const std::size_t shown = std::min(keys.size(), shown_keys);
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) out += ", ";
    append_quoted(out, keys[i]);
  }
  if (keys.size() > shown) out += fmt::format(" and {} more", keys.size() - shown);
  return out;
}

}  // namespace

std::string_view name_of(store_operation o) noexcept {
  switch (o) {
    case store_operation::set:
      return "set";
    case store_operation::get:
      return "get";
    case store_operation::try_get:
      return "try_get";
    case store_operation::wait:
      return "wait";
    case store_operation::add:
      return "add";
    case store_operation::compare_set:
      return "compare_set";
    case store_operation::erase:
      return "erase";
    case store_operation::check:
      return "check";
    case store_operation::num_keys:
      return "num_keys";
    case store_operation::append:
      return "append";
    case store_operation::multi_get:
      return "multi_get";
    case store_operation::multi_set:
      return "multi_set";
    case store_operation::push:
      return "push";
    case store_operation::pop:
      return "pop";
    case store_operation::try_pop:
      return "try_pop";
    case store_operation::queue_size:
      return "queue_size";
    case store_operation::keys:
      return "keys";
    case store_operation::barrier:
      return "barrier";
    case store_operation::transaction:
      return "transaction";
    case store_operation::lease:
      return "lease";
    case store_operation::watch:
      return "watch";
    case store_operation::list:
      return "list";
  }
  return "unknown";
}

std::string_view name_of(store_error_kind k) noexcept {
  switch (k) {
    case store_error_kind::unreachable:
      return "unreachable";
    case store_error_kind::timed_out:
      return "timed_out";
    case store_error_kind::protocol:
      return "protocol";
    case store_error_kind::too_large:
      return "too_large";
    case store_error_kind::refused:
      return "refused";
  }
  return "unknown";
}

store_failure::store_failure(store_error_kind kind, std::string store,
                             store_operation operation, std::vector<std::string> keys,
                             duration elapsed, std::string reason)
    : kind(kind),
      store(std::move(store)),
      operation(operation),
      keys(std::move(keys)),
      elapsed(elapsed),
      reason(std::move(reason)) {}

std::string store_failure::text() const {
  std::string what(name_of(operation));
  if (!keys.empty()) what += " of " + quoted_list(keys);
  std::string out = fmt::format("store {}: {} ", store, what);
  switch (kind) {
    case store_error_kind::unreachable:
      out += "failed, the store is unreachable";
      break;
    case store_error_kind::timed_out:
      out += "timed out";
      break;
    case store_error_kind::protocol:
      out += "failed, the store broke its protocol";
      break;
    case store_error_kind::too_large:
      out += "exceeds the store's limits";
      break;
    case store_error_kind::refused:
      out += "was refused";
      break;
  }
  if (elapsed > duration::zero()) out += " after " + duration_text(elapsed);
  if (!reason.empty()) out += ": " + reason;
  if (may_have_happened) out += " (it may have taken effect)";
  return out;
}

store_error::store_error(store_failure failure) {
  std::string text = failure.text();
  state_ = std::make_shared<const state>(state{std::move(failure), std::move(text)});
}

const char* store_error::what() const noexcept { return state_->text.c_str(); }

}  // namespace manyworlds::inline v0
