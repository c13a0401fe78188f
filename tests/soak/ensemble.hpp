// Ensemble: the collectives of one epoch. Rank 0 says by broadcasts which one is next,
// and when it was the last.
#pragma once

#include <cstdint>
#include <span>

#include "manyworlds/coro/task.hpp"
#include "manyworlds/world/outcome.hpp"
#include "manyworlds/world/world.hpp"
#include "simulation/talk_site.hpp"

namespace manyworlds_tests::soak {

/// Every result is checked against what all members must have given.
class ensemble {
 public:
  ensemble(const talk_site& site, mw::world& w) : site_(site), world_(w) {}
  ensemble(const ensemble&) = delete;
  ensemble& operator=(const ensemble&) = delete;

  /// What rank 0 thinks of the end is what all do. Throws world_error.
  [[nodiscard]] mw::task<void> agree_on(mw::time_point& end);
  /// Until that time, or until the world is over.
  [[nodiscard]] mw::task<void> perform(mw::time_point end);

 private:
  using elements = std::span<std::uint64_t>;
  struct turn {
    std::uint64_t number = 0;
    std::uint64_t kind = 0;
    std::uint64_t count = 0;
    std::uint64_t root = 0;
  };

  [[nodiscard]] turn any_turn(std::uint64_t number);
  [[nodiscard]] mw::task<mw::failure> told(std::span<std::uint64_t, 4> words,
                                           std::uint64_t number);
  /// False if the world is over.
  [[nodiscard]] mw::task<bool> take(turn t);
  template <class Operation>
  [[nodiscard]] mw::task<mw::failure> recorded(mw::operation_kind kind,
                                               std::uint64_t number, Operation op);
  [[nodiscard]] mw::task<mw::failure> move(mw::operation_kind kind, turn t, elements in,
                                           elements out);
  [[nodiscard]] mw::task<mw::failure> reduce(mw::operation_kind kind, turn t, elements in,
                                             elements out);
  void check(mw::operation_kind kind, const turn& t, elements out);
  [[nodiscard]] std::uint64_t expected(mw::operation_kind kind, const turn& t,
                                       std::uint64_t at) const;

  const talk_site& site_;
  mw::world& world_;
};

}  // namespace manyworlds_tests::soak
