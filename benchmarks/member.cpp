#include "member.hpp"

#include <span>
#include <stdexcept>

namespace mwbench {

namespace {

mw::task<void> form(mw::world& w) { co_await w; }

}  // namespace

mw::task<void> form_all(std::vector<mw::world>& worlds) {
  std::vector<mw::task<void>> forming;
  for (mw::world& w : worlds) forming.push_back(form(w));
  co_await mw::when_all(std::move(forming));
}

mw::task<void> leave_all(std::vector<mw::world>& worlds) {
  std::vector<mw::task<void>> leaving;
  for (mw::world& w : worlds) leaving.push_back(w.leave());
  co_await mw::when_all(std::move(leaving));
}

mw::task<void> park(mw::world& w, mw::rank_t peer, mw::lane on) {
  char byte = 0;
  const auto ended =
      co_await mw::outcome(w.recv(std::span(&byte, 1), mw::from{peer}, on));
  if (ended) throw std::logic_error("a parked receive got a message");
  if (ended.error().cause != mw::cause::closed) throw mw::world_error(ended.error());
}

}  // namespace mwbench
