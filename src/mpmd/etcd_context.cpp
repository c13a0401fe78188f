#include "mpmd/etcd_context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "mpmd/context_log.hpp"
#include "mpmd/etcd_trouble.hpp"
#include "mpmd/graph_units.hpp"

namespace manyworlds::inline v0::detail {

namespace {

const char* const context_prefix = "context/";
const char* const term_key = "context/term";
const char* const head_key = "context/head";
constexpr std::string_view value_prefix = "context/value/";
/// A write that others overtake this often has met something that is no master.
constexpr int most_overtakings = 20;

/// Reads numbers parted by blanks, and nothing else.
std::optional<std::vector<std::uint64_t>> numbers_in(std::string_view text) {
  std::vector<std::uint64_t> all;
  const char* at = text.data();
  const char* const end = at + text.size();
  for (;;) {
    const auto parsed = std::from_chars(at, end, all.emplace_back());
    if (parsed.ec != std::errc()) return std::nullopt;
    if (parsed.ptr == end) return all;
    if (*parsed.ptr != ' ') return std::nullopt;
    at = parsed.ptr + 1;
  }
}

std::uint64_t checksum_of(std::string_view key, std::string_view value) noexcept {
  return context_checksum(context_chain_start).text(key).text(value).value();
}

std::uint64_t checksum_of_head(std::uint64_t term, std::uint64_t sequence,
                               std::uint64_t sum) noexcept {
  return context_head{term, sequence, sum}.checksum();
}

}  // namespace

etcd_store_options graph_store_options(std::string_view job, etcd_store_options more) {
  more.prefix = fmt::format("manyworlds/graph/{}/", job);
  // What is kept outlives its master.
  more.key_lease = duration::zero();
  return more;
}

void etcd_context::refuse(context_trouble trouble, const std::string& text) const {
  throw context_error(trouble, fmt::format("{}: {}", where(), text));
}

void etcd_context::compare_terms(std::uint64_t known, std::uint64_t ours) const {
  if (known > ours)
    refuse(
        context_trouble::deposed,
        fmt::format("term {} has ended: another master has taken term {}", ours, known));
  if (known < ours)
    refuse(context_trouble::damaged,
           fmt::format("term {} was taken, and etcd has only {}: its data are older",
                       ours, known));
}

task<etcd_outcome> etcd_context::commit(etcd_transaction transaction) {
  std::optional<context_error> failed;
  try {
    co_return co_await store_.commit(std::move(transaction), limit_);
  } catch (const store_error& e) {
    failed = context_error_of(e);
  }
  throw context_error(*failed);
}

task<context_values> etcd_context::read_all() {
  known_.reset();
  std::optional<context_error> failed;
  try {
    etcd_listing all = co_await store_.list(context_prefix, limit_);
    context_values values;
    known_ = learn(std::move(all), values);
    co_return values;
  } catch (const store_error& e) {
    failed = context_error_of(e);
  }
  throw context_error(*failed);
}

/// Reads all keys of one revision. Errors: `damaged` if they do not fit together.
etcd_context::knowledge etcd_context::learn(etcd_listing listing,
                                            context_values& values) const {
  knowledge now;
  std::uint64_t head_term = 0;
  std::uint64_t head_sum = 0;
  for (etcd_entry& entry : listing.entries) {
    if (entry.key == term_key) {
      const auto numbers = numbers_in(entry.value);
      if (!numbers || numbers->size() != 1)
        refuse(context_trouble::damaged, "the term is not what was written");
      now.term = numbers->front();
      now.term_revision = entry.mod_revision;
    } else if (entry.key == head_key) {
      const auto numbers = numbers_in(entry.value);
      if (!numbers || numbers->size() != 4 ||
          numbers->at(3) !=
              checksum_of_head(numbers->at(0), numbers->at(1), numbers->at(2)))
        refuse(context_trouble::damaged, "the head is not what was written");
      head_term = numbers->at(0);
      now.sequence = numbers->at(1);
      head_sum = numbers->at(2);
      now.head_revision = entry.mod_revision;
    } else if (entry.key.starts_with(value_prefix)) {
      std::string key = entry.key.substr(value_prefix.size());
      note(now, {key, entry.value});
      values.emplace(std::move(key), std::move(entry.value));
    }
  }
  if (head_term > now.term)
    refuse(context_trouble::damaged,
           fmt::format("the head was written in term {}, and the term is {}", head_term,
                       now.term));
  if (head_sum != now.sum)
    refuse(context_trouble::damaged,
           fmt::format("the {} values are not those that were written: another hand has "
                       "changed or erased some",
                       values.size()));
  return now;
}

/// Counts a change in the sums.
void etcd_context::note(knowledge& of, const context_write& change) {
  const auto before = of.values.find(change.key);
  if (before != of.values.end()) {
    of.sum -= before->second.checksum;
    of.bytes -= before->second.bytes;
    of.values.erase(before);
  }
  if (!change.value) return;
  const known_value now{checksum_of(change.key, *change.value),
                        change.key.size() + change.value->size()};
  of.values.emplace(change.key, now);
  of.sum += now.checksum;
  of.bytes += now.bytes;
}

/// Returns how many bytes there would be after these changes.
std::uint64_t etcd_context::bytes_after(
    const knowledge& now,
    const std::map<std::string_view, const context_write*>& changes) {
  std::uint64_t bytes = now.bytes;
  for (const auto& [key, change] : changes) {
    const auto before = now.values.find(key);
    if (before != now.values.end()) bytes -= before->second.bytes;
    if (change->value) bytes += key.size() + change->value->size();
  }
  return bytes;
}

task<std::uint64_t> etcd_context::term() {
  etcd_transaction reading;
  reading.then_get(term_key);
  const etcd_outcome read = co_await commit(std::move(reading));
  if (read.entries.empty() || !read.entries.front()) co_return 0;
  const auto numbers = numbers_in(read.entries.front()->value);
  if (!numbers || numbers->size() != 1)
    refuse(context_trouble::damaged, "the term is not what was written");
  co_return numbers->front();
}

task<std::uint64_t> etcd_context::take_term(std::uint64_t seen) {
  // All of it: a term is taken of what is whole.
  co_await read_all();
  compare_terms(known_->term, seen);
  knowledge next = std::move(*std::exchange(known_, std::nullopt));
  etcd_transaction taking;
  taking.when(etcd_target::mod_revision, term_key, next.term_revision)
      .then_set(term_key, std::to_string(seen + 1));
  const etcd_outcome done = co_await commit(std::move(taking));
  if (!done.succeeded)
    refuse(context_trouble::deposed,
           fmt::format("another master has taken term {}", seen + 1));
  next.term = seen + 1;
  next.term_revision = done.revision;
  known_ = std::move(next);
  co_return seen + 1;
}

task<context_values> etcd_context::load() { return read_all(); }

task<void> etcd_context::write(std::uint64_t term, std::vector<context_write> changes) {
  check_context_write(changes);
  // etcd takes a key once.
  std::map<std::string_view, const context_write*> last;
  for (const context_write& change : changes) last[change.key] = &change;
  for (int overtaken = 0; overtaken < most_overtakings; ++overtaken) {
    if (!known_) co_await read_all();
    compare_terms(known_->term, term);
    const std::uint64_t bytes = bytes_after(*known_, last);
    // What makes it smaller is written in any case.
    if (bytes > etcd_context_most_bytes && bytes > known_->bytes)
      refuse(context_trouble::full,
             fmt::format("the context would have {}, and may have {}",
                         byte_size_text(bytes), byte_size_text(etcd_context_most_bytes)));
    // While it is under way, nothing is known.
    knowledge next = std::move(*std::exchange(known_, std::nullopt));
    etcd_transaction writing;
    writing.when(etcd_target::mod_revision, term_key, next.term_revision)
        .when(etcd_target::mod_revision, head_key, next.head_revision);
    for (const auto& [key, change] : last) {
      note(next, *change);
      std::string name = std::string(value_prefix) + change->key;
      if (change->value) {
        writing.then_set(std::move(name), *change->value);
      } else {
        writing.then_erase(std::move(name));
      }
    }
    ++next.sequence;
    writing.then_set(head_key,
                     fmt::format("{} {} {} {}", term, next.sequence, next.sum,
                                 checksum_of_head(term, next.sequence, next.sum)));
    const etcd_outcome done = co_await commit(std::move(writing));
    if (done.succeeded) {
      next.head_revision = done.revision;
      known_ = std::move(next);
      co_return;
    }
    // A term was taken, or an earlier attempt of ours has arrived after all.
  }
  refuse(context_trouble::unreachable, "others write all the time");
}

}  // namespace manyworlds::inline v0::detail
