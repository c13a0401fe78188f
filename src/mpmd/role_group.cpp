#include "manyworlds/mpmd/role_group.hpp"

#include <utility>

#include "mpmd/role_group_core.hpp"

namespace manyworlds::inline v0 {

using detail::asked_ones;
using detail::call_ending;
using detail::group_question;
using detail::result_taker;
using detail::role_group_core;

static group_question question_of(std::string method, asked_ones whom,
                                  std::vector<std::string> arguments,
                                  role_call_options how) {
  return {std::move(method), false, whom, {}, std::move(arguments), how};
}

static group_question question_of(std::string method, asked_ones whom,
                                  std::string argument, role_call_options how) {
  std::vector<std::string> alone;
  alone.push_back(std::move(argument));
  return question_of(std::move(method), whom, std::move(alone), how);
}

static result_taker into_list(std::vector<std::string>& results) {
  return [&results](std::size_t number, std::string_view result) {
    if (results.size() <= number) results.resize(number + 1);
    results[number] = result;
  };
}

role_group::role_group() : role_group(options()) {}
role_group::role_group(options how) : core_(std::make_unique<role_group_core>(how)) {}
role_group::~role_group() = default;

// --- any bytes ------------------------------------------------------------------------

static task<std::string> one_text(role_group_core& core, group_question asked) {
  std::vector<std::string> results;
  result_taker take = into_list(results);
  co_await core.ask_one(std::move(asked), std::move(take));
  co_return std::move(results.at(0));
}

static task<std::vector<std::string>> several_texts(role_group_core& core,
                                                    group_question asked) {
  std::vector<std::string> results;
  result_taker take = into_list(results);
  static_cast<void>(co_await core.ask_several(std::move(asked), std::move(take), true));
  co_return results;
}

static task<std::vector<role_group::outcome>> text_of_each(role_group_core& core,
                                                           group_question asked) {
  std::vector<std::string> results;
  result_taker take = into_list(results);
  std::vector<call_ending> ended =
      co_await core.ask_several(std::move(asked), std::move(take), false);
  results.resize(ended.size());
  std::vector<role_group::outcome> all(ended.size());
  for (std::size_t n = 0; n < ended.size(); ++n) {
    all[n].from = std::move(ended[n].from);
    all[n].result = std::move(results[n]);
    all[n].why = std::move(ended[n].why);
  }
  co_return all;
}

task<std::string> role_group::any(std::string method, std::string argument,
                                  role_call_options how) {
  return one_text(
      *core_, question_of(std::move(method), asked_ones::one, std::move(argument), how));
}

task<std::string> role_group::at(std::uint32_t index, std::string method,
                                 std::string argument, role_call_options how) {
  group_question asked =
      question_of(std::move(method), asked_ones::one, std::move(argument), how);
  asked.index = index;
  return one_text(*core_, std::move(asked));
}

task<std::vector<std::string>> role_group::all(std::string method, std::string argument,
                                               role_call_options how) {
  return several_texts(
      *core_, question_of(std::move(method), asked_ones::all, std::move(argument), how));
}

task<std::vector<role_group::outcome>> role_group::outcomes(std::string method,
                                                            std::string argument,
                                                            role_call_options how) {
  return text_of_each(
      *core_, question_of(std::move(method), asked_ones::all, std::move(argument), how));
}

task<std::vector<std::string>> role_group::scatter(std::string method,
                                                   std::vector<std::string> arguments,
                                                   role_call_options how) {
  return several_texts(*core_, question_of(std::move(method), asked_ones::by_index,
                                           std::move(arguments), how));
}

task<std::vector<std::string>> role_group::batch(std::string method,
                                                 std::vector<std::string> arguments,
                                                 role_call_options how) {
  return several_texts(*core_, question_of(std::move(method), asked_ones::in_parts,
                                           std::move(arguments), how));
}

task<std::vector<role_group::outcome>> role_group::batch_outcomes(
    std::string method, std::vector<std::string> arguments, role_call_options how) {
  return text_of_each(*core_, question_of(std::move(method), asked_ones::in_parts,
                                          std::move(arguments), how));
}

// --- values ---------------------------------------------------------------------------

task<void> role_group::ask_one(group_question asked, result_taker take) {
  return core_->ask_one(std::move(asked), std::move(take));
}

task<void> role_group::ask_all(group_question asked, result_taker take) {
  static_cast<void>(co_await core_->ask_several(std::move(asked), std::move(take), true));
}

task<std::vector<call_ending>> role_group::ask_each(group_question asked,
                                                    result_taker take) {
  return core_->ask_several(std::move(asked), std::move(take), false);
}

std::vector<instance_id> role_group::members() const { return core_->members(); }

task<void> role_group::reach(world& w, instance_id peer) {
  return core_->reach(w, std::move(peer));
}

}  // namespace manyworlds::inline v0
