#include "manyworlds/launch/rendezvous.hpp"

#include <utility>

#include "launch/rendezvous_agent.hpp"

namespace manyworlds::inline v0 {

std::string_view name_of(round_change change) noexcept {
  switch (change) {
    case round_change::none:
      return "none";
    case round_change::node_lost:
      return "node_lost";
    case round_change::node_left:
      return "node_left";
    case round_change::asked:
      return "asked";
    case round_change::node_waits:
      return "node_waits";
    case round_change::closed:
      return "closed";
  }
  return "unknown";
}

rendezvous_error::rendezvous_error(rendezvous_error_kind kind, const std::string& text)
    : kind_(kind), text_(std::make_shared<const std::string>(text)) {}

rendezvous::rendezvous(runtime& rt, rendezvous_options options, node_description self)
    : agent_(std::make_unique<agent>(rt, std::move(options), std::move(self))) {}

rendezvous::~rendezvous() = default;

task<void> rendezvous::run_task(task<void> body) { return agent_->run(std::move(body)); }
task<round> rendezvous::next() { return agent_->next(); }
task<round_change> rendezvous::changed() { return agent_->changed(); }
task<void> rendezvous::left_out() { return agent_->left_out(); }
bool rendezvous::is_left_out() const noexcept { return agent_->is_left_out(); }
bool rendezvous::was_open() const noexcept { return agent_->was_open(); }
task<void> rendezvous::post(std::string text) { return agent_->post(std::move(text)); }
task<std::map<std::string, std::string>> rendezvous::posted() { return agent_->posted(); }
task<void> rendezvous::leave(departure how) { return agent_->leave(how); }
task<void> rendezvous::close() { return agent_->close(); }
const std::string& rendezvous::id() const noexcept { return agent_->id(); }
bool rendezvous::is_coordinator() const noexcept { return agent_->is_coordinator(); }

}  // namespace manyworlds::inline v0
