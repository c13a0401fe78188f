#include "manyworlds/mpmd/role_context.hpp"

#include <charconv>
#include <utility>

#include "launch/environment_variables.hpp"
#include "manyworlds/launch/launch_error.hpp"
#include "manyworlds/store/tcp_store.hpp"
#include "mpmd/job_store.hpp"
#include "mpmd/role_core.hpp"
#include "mpmd/role_variables.hpp"

namespace manyworlds::inline v0 {

std::string_view name_of(peer_event_kind kind) noexcept {
  switch (kind) {
    case peer_event_kind::peer_came:
      return "peer_came";
    case peer_event_kind::peer_lost:
      return "peer_lost";
    case peer_event_kind::peer_back:
      return "peer_back";
  }
  return "?";
}

namespace {

std::string needed(const launch_variables& variables, const char* name) {
  const auto at = variables.find(name);
  if (at == variables.end() || at->second.empty())
    throw launch_error(name, "it is missing: an agent of a role graph sets it (mwgraph)");
  return at->second;
}

instance_id instance_from(const std::string& text) {
  instance_id id;
  const std::size_t dot = text.rfind('.');
  if (dot != std::string::npos && dot > 0) {
    id.role = text.substr(0, dot);
    const char* const end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + dot + 1, end, id.index);
    if (read.ec == std::errc() && read.ptr == end && dot + 1 < text.size()) return id;
  }
  throw launch_error(detail::instance_variable, "\"" + text + "\" names no instance");
}

std::shared_ptr<detail::role_core> core_from(const launch_variables& variables,
                                             const launch_context& job) {
  const auto of_etcd = variables.find(detail::job_store_variable);
  return std::make_shared<detail::role_core>(
      instance_from(needed(variables, detail::instance_variable)),
      static_cast<std::uint64_t>(job.incarnation),
      needed(variables, detail::node_variable), needed(variables, detail::token_variable),
      job.run_id, of_etcd == variables.end() ? std::string() : of_etcd->second,
      job.local_rank);
}

}  // namespace

role_context::role_context() : launch_context(launch_context::from_environment()) {
  core_ = core_from(detail::variables_of_this_process(), *this);
}

role_context::role_context(const launch_variables& variables)
    : launch_context(launch_context::from(variables)),
      core_(core_from(variables, *this)) {}

const instance_id& role_context::instance() const noexcept { return core_->instance(); }
const std::string& role_context::node() const noexcept { return core_->node(); }
const job_graph& role_context::graph() const { return core_->graph(); }

int role_context::run(class runtime& rt, role_body body, job_options options) {
  const auto whole = [&]() -> task<void> {
    tcp_store_options client;
    client.secret = secret();
    const std::string& etcd = core_->meeting_address();
    const auto meeting = detail::open_job_store(rt, etcd.empty() ? store : etcd, client);
    co_await run_in(rt, *meeting, std::move(body));
  };
  return launch_context::run(rt, whole(), options);
}

task<void> role_context::run_in(class runtime& rt, class store& meeting, role_body body) {
  return core_->run(rt, meeting, std::move(body));
}

task<void> role_context::each(std::string edge, world_body body) {
  const auto in_world = [body = std::move(body)](class world& w, const instance_id&) {
    return body(w);
  };
  return core_->keep_worlds(std::move(edge), false, in_world);
}

task<void> role_context::each(std::string edge, peer_body body) {
  return core_->keep_worlds(std::move(edge), false, std::move(body));
}

task<void> role_context::world(std::string edge, world_body body) {
  const auto in_world = [body = std::move(body)](class world& w, const instance_id&) {
    return body(w);
  };
  return core_->keep_worlds(std::move(edge), true, in_world);
}

task<void> role_context::serve(std::string edge, role_methods& answers) {
  return core_->answer_calls(std::move(edge), answers);
}

task<void> role_context::ask(std::string edge, role_group& of) {
  return core_->ask(std::move(edge), of);
}

task<manyworlds::session> role_context::session(session_options limits) {
  return core_->start_session(limits);
}

task<void> role_context::work(const function_table& functions) {
  return core_->work(functions);
}

task<peer_event> role_context::next_peer_event() { return core_->next_peer_event(); }
void role_context::ready() noexcept { core_->ready(); }
void role_context::progress(std::uint64_t steps) noexcept { core_->progress(steps); }
task<void> role_context::leaving() { return core_->leaving(); }

task<void> role_context::record(std::string key, std::string value) {
  return core_->record(std::move(key), std::move(value));
}

const std::map<std::string, std::string>& role_context::facts() const {
  return core_->facts();
}

void role_context::on_failover(failover_handler handler) {
  core_->controller() = std::move(handler);
}

}  // namespace manyworlds::inline v0
