#include "manyworlds/mpmd/role_methods.hpp"

#include <fmt/format.h>

#include <map>
#include <span>
#include <stdexcept>
#include <utility>

#include "manyworlds/failure.hpp"
#include "manyworlds/serve/call_server.hpp"
#include "mpmd/call_head.hpp"
#include "mpmd/spoken_text.hpp"

namespace manyworlds::inline v0 {

namespace detail {

class role_methods_core {
 public:
  role_methods_core() : server_([this](served_call& call) { return answer(call); }) {}

  void add(std::string name, role_methods::method answer, call_form form) {
    if (name.empty() || name.size() > longest_method)
      throw std::invalid_argument(
          fmt::format("a method's name has 1 to {} bytes, and {} "
                      "has not",
                      longest_method, in_quotes(name)));
    if (!answer)
      throw std::invalid_argument(
          fmt::format("method {} has nothing that answers", in_quotes(name)));
    const auto [at, is_new] =
        methods_.emplace(std::move(name), known{std::move(answer), form});
    if (!is_new)
      throw std::invalid_argument(
          fmt::format("there is a method {} already", in_quotes(at->first)));
  }
  [[nodiscard]] call_server& server() noexcept { return server_; }

 private:
  struct known {
    role_methods::method answer;
    call_form form;
  };

  [[nodiscard]] task<void> answer(served_call& served) {
    const std::span<const std::byte> all = served.data();
    std::string_view rest(reinterpret_cast<const char*>(all.data()), all.size());
    const std::optional<call_head> head = take_call_head(rest);
    if (!head)
      throw world_error(failure(cause::invalid_argument,
                                "a request that no role group has sent begins so"));
    const auto found = methods_.find(head->method);
    if (found == methods_.end())
      throw world_error(failure(cause::unsupported, no_such(head->method)));
    if (head->form != found->second.form)
      throw world_error(failure(cause::invalid_argument, wrong_form(*head)));
    role_call call(served, *head);
    call.data_ = rest;
    const std::string result = co_await found->second.answer(call);
    co_await served.reply(result);
  }

  [[nodiscard]] static std::string wrong_form(const call_head& head) {
    const bool are_values = head.form == call_form::values;
    return fmt::format("method {} takes {}, and {} have come", in_quotes(head.method),
                       are_values ? "bytes" : "values", are_values ? "values" : "bytes");
  }
  [[nodiscard]] std::string no_such(const std::string& method) const {
    std::vector<std::string_view> names;
    for (const auto& [name, answer] : methods_) names.push_back(name);
    return fmt::format("there is no method {}{}", in_quotes(method),
                       did_you_mean(method, names));
  }

  std::map<std::string, known, std::less<>> methods_;
  call_server server_;
};

}  // namespace detail

role_call::role_call(served_call& call, const detail::call_head& head)
    : call_(call), method_(head.method), from_(head.from), id_(head.id) {}

std::optional<time_point> role_call::deadline() const noexcept {
  return call_.deadline();
}
std::stop_token role_call::stop_token() const noexcept { return call_.stop_token(); }

role_methods::role_methods() : core_(std::make_unique<detail::role_methods_core>()) {}
role_methods::~role_methods() = default;

role_methods& role_methods::on(std::string name, method answer) {
  core_->add(std::move(name), std::move(answer), detail::call_form::bytes);
  return *this;
}
void role_methods::on_values(std::string name, method answer) {
  core_->add(std::move(name), std::move(answer), detail::call_form::values);
}

task<void> role_methods::serve(world& w) { return core_->server().serve(w); }
task<void> role_methods::drain() { return core_->server().drain(); }

}  // namespace manyworlds::inline v0
