#include "nccl/collective_table.hpp"

#include <fmt/format.h>

namespace manyworlds::inline v0::detail::nccl {

collective_table::verdict collective_table::enter(rank_t who, std::uint64_t number,
                                                  const collective_terms& terms,
                                                  time_point now) {
  std::uint64_t& last = entered_[static_cast<std::size_t>(who)];
  if (number != last + 1) {
    return {outcome::out_of_turn, no_rank, "a collective out of turn"};
  }
  last = number;
  if (departed_ != no_rank) return {outcome::lost, departed_, {}};
  const auto at = static_cast<std::size_t>(number - first_number_);
  if (at == most_open) {
    return {outcome::out_of_turn, no_rank, "too many collectives ahead of the others"};
  }
  if (at == open_.size()) {
    entry fresh;
    fresh.terms = terms;
    fresh.first = who;
    fresh.since = now;
    open_.push_back(std::move(fresh));
  }
  entry& e = open_[at];
  if (e.terms != terms) {
    return {outcome::disagrees, e.first,
            fmt::format("collective {}: rank {} entered {}, rank {} {}", number, e.first,
                        e.terms.text(), who, terms.text())};
  }
  if (++e.count < entered_.size()) return {};
  // No member is behind the one that completes it, so it is the first.
  open_.pop_front();
  ++first_number_;
  return {outcome::complete, no_rank, {}};
}

std::vector<std::uint64_t> collective_table::leave(rank_t who) {
  if (departed_ == no_rank) departed_ = who;
  std::vector<std::uint64_t> lost;
  for (std::size_t i = 0; i < open_.size(); ++i) lost.push_back(first_number_ + i);
  first_number_ += open_.size();
  open_.clear();
  return lost;
}

const collective_table::overdue* collective_table::oldest(time_point now,
                                                          duration limit) {
  if (open_.empty() || now - open_.front().since < limit) return nullptr;
  const entry& e = open_.front();
  oldest_.number = first_number_;
  oldest_.terms = e.terms;
  oldest_.since = now - e.since;
  oldest_.is_logged = e.logged;
  oldest_.absent.clear();
  for (std::size_t r = 0; r < entered_.size(); ++r) {
    if (entered_[r] < first_number_) oldest_.absent.push_back(static_cast<rank_t>(r));
  }
  return &oldest_;
}

}  // namespace manyworlds::inline v0::detail::nccl
