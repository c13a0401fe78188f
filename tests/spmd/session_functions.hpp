// The functions that the sessions of tests call, in threads and in processes.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "manyworlds/mw.hpp"
#include "manyworlds/spmd.hpp"
#include "manyworlds/weights/weight_files.hpp"

namespace manyworlds::spmd_tests {

/// A value that lives on workers only.
struct part_of_model {
  int scale = 1;
};

struct sampling {
  int top = 0;
  float heat = 0;
};

}  // namespace manyworlds::spmd_tests

template <>
inline constexpr bool manyworlds::is_plain_record<manyworlds::spmd_tests::sampling> =
    true;

namespace manyworlds::spmd_tests {

inline constexpr remote_function<int(int)> add_one{"add_one", alone};
inline constexpr remote_function<double(double)> add_one_real{"add_one_real", alone};
inline constexpr remote_function<std::string(std::string)> with_suffix{"suffix", alone};
inline constexpr remote_function<std::vector<int>(std::vector<int>)> longer{"longer",
                                                                            alone};
inline constexpr remote_function<std::vector<std::byte>(std::vector<std::byte>)>
    same_bytes{"same_bytes", alone};
inline constexpr remote_function<std::tuple<bool, std::optional<int>, dtype, sampling>(
    bool, std::optional<int>, dtype, sampling)>
    same_values{"same_values", alone};
inline constexpr remote_function<tensor(tensor)> plus_one_each{"plus_one_each", alone};
inline constexpr remote_function<part_of_model(int)> load_part{"load_part", alone};
inline constexpr remote_function<std::vector<int>(const part_of_model&, std::vector<int>)>
    scaled_sum{"scaled_sum"};
/// The controller thinks that it gives a part of a model; at the workers it is a number.
inline constexpr remote_function<part_of_model(int)> load_other{"add_one", alone};
inline constexpr remote_function<int()> rank_here{"rank_here"};
inline constexpr remote_function<std::vector<int>()> place_alone{"place_alone", alone};
inline constexpr remote_function<int()> size_here{"size_here"};
inline constexpr remote_function<int()> process_here{"process_here", alone};
inline constexpr remote_function<int(int)> fails_on{"fails_on"};
inline constexpr remote_function<int(const int&)> one_more{"one_more", alone};
inline constexpr remote_function<void(int&, int)> add_to{"add_to", alone};
inline constexpr remote_function<void(int)> sleep_ms{"sleep_ms", alone};
inline constexpr remote_function<void(int)> block_ms{"block_ms", alone};
inline constexpr remote_function<void(int, int)> all_but_one_enter{"all_but_one_enter"};
/// Rank 0 sends the number to rank 1, which gives what it gets.
inline constexpr remote_function<int(int)> passed_on{"passed_on"};
/// Does the same, and rank 0 goes on working for that many milliseconds.
inline constexpr remote_function<int(int, int)> passed_on_slowly{"passed_on_slowly"};
inline constexpr remote_function<void(int, int)> sends_too_much{"sends_too_much"};
inline constexpr remote_function<int(int)> raise_signal{"raise_signal", alone};
inline constexpr remote_function<int(int&, int)> exchanged{"exchanged", alone};
inline constexpr remote_function<int(int, int)> other_types{"add_one", alone};
inline constexpr remote_function<void(int, int)> block_or_fail{"block_or_fail"};
inline constexpr remote_function<std::vector<std::string>(int)> many_texts{"many_texts",
                                                                           alone};
/// As `load_part`, and counts.
inline constexpr remote_function<part_of_model(int)> load_counted{"load_counted", alone};
/// How often `load_counted` ran in this process.
inline constexpr remote_function<int()> loads_so_far{"loads_so_far", alone};
/// How many microseconds of a CPU its thread has used.
inline constexpr remote_function<std::int64_t()> cpu_time_so_far{"cpu_time_so_far",
                                                                 alone};
inline constexpr remote_function<int(int)> slow_one{"slow_one", alone};
inline constexpr remote_function<void()> nowhere{"nowhere", alone};
inline constexpr remote_function<any_value(any_value, int)> same_any{"same_any", alone};
/// The number of its device; -1 without one.
inline constexpr remote_function<int()> device_here{"device_here", alone};
/// The CPU that it is bound to; -1 if there are several.
inline constexpr remote_function<int()> cpu_here{"cpu_here", alone};
/// The sum of the number and the ids of all workers, made where their tensors lie.
inline constexpr remote_function<int(int)> sum_on_devices{"sum_on_devices"};
/// At the workers it takes any arguments.
inline constexpr remote_function<double(double)> typed_total{"total", alone};

/// All tensors of a file, or of each the part along that dimension which its id has.
inline constexpr remote_function<std::vector<float>(std::string, int)> weights_of{
    "weights_of", alone};
/// They write the number of their process to the file, and then hear nothing for a
/// minute: on the thread of their reactor, and on another.
inline constexpr remote_function<void(std::string)> stays_here{"stays_here", alone};
inline constexpr remote_function<void(std::string)> blocks_here{"blocks_here", alone};

/// Makes a vector without a braced list, which g++ 12.2 refuses in awaited expressions.
template <class... Numbers>
std::vector<int> ints(Numbers... numbers) {
  std::vector<int> all;
  (all.push_back(numbers), ...);
  return all;
}

/// All members add up ones.
inline task<int> count_members(world& w) {
  std::vector<int> x{1};
  co_await w.all_reduce(x, sum);
  co_return x[0];
}

inline void write_pid_and_stay(const std::string& file) {
  std::ofstream(file) << ::getpid() << std::endl;
  std::this_thread::sleep_for(std::chrono::minutes(1));
}

inline task<std::vector<float>> read_weights(const worker& me, std::string path,
                                             int dimension) {
  auto opening = weight_files::open(std::move(path));
  const weight_files files = co_await std::move(opening);
  std::vector<float> all;
  for (const std::string& name : files.names()) {
    const stored_tensor& stored = files.at(name);
    const weight_slice part =
        dimension < 0 ? weight_slice::whole(stored)
                      : weight_slice::split(stored, static_cast<std::size_t>(dimension),
                                            me.rank(), me.size());
    auto loading = files.load(name, part);
    const tensor x = co_await std::move(loading);
    all.insert(all.end(), x.as<float>().begin(), x.as<float>().end());
  }
  co_return all;
}

inline std::atomic<int>& loads_here() {
  static std::atomic<int> loads{0};
  return loads;
}

inline const function_table& test_functions() {
  using namespace std::chrono_literals;
  static const function_table all{
      {add_one, [](int x) { return x + 1; }},
      {add_one_real, [](double x) { return x + 0.5; }},
      {with_suffix, [](const std::string& x) { return x + "_suffix"; }},
      {longer,
       [](std::vector<int> x) {
         x.push_back(static_cast<int>(x.size()) + 1);
         return x;
       }},
      {same_bytes, [](std::vector<std::byte> x) { return x; }},
      {same_values, [](bool a, std::optional<int> b, dtype c,
                       sampling d) { return std::tuple(a, b, c, d); }},
      {plus_one_each,
       [](tensor x) {
         for (float& each : x.as<float>()) each += 1;
         return x;
       }},
      {load_part,
       [](const worker& me, int scale) { return part_of_model{scale + me.id()}; }},
      {load_counted,
       [](const worker& me, int scale) {
         ++loads_here();
         return part_of_model{scale + me.id()};
       }},
      {loads_so_far, [] { return loads_here().load(); }},
      {cpu_time_so_far,
       [] {
         timespec used{};
         ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
         return std::int64_t{used.tv_sec} * 1'000'000 + used.tv_nsec / 1000;
       }},
      {scaled_sum,
       [](worker& me, const part_of_model& by,
          std::vector<int> x) -> task<std::vector<int>> {
         for (int& each : x) each *= by.scale;
         co_await me.world().all_reduce(x, sum);
         co_return x;
       }},
      {rank_here, [](const worker& me) { return static_cast<int>(me.rank()); }},
      {place_alone,
       [](const worker& me) {
         return ints(me.id(), static_cast<int>(me.rank()), static_cast<int>(me.size()),
                     static_cast<int>(me.incarnation()));
       }},
      {size_here, [](const worker& me) { return static_cast<int>(me.size()); }},
      {process_here, [] { return static_cast<int>(::getpid()); }},
      {fails_on,
       [](worker& me, int which) -> task<int> {
         if (me.id() == which || which < 0)
           throw std::runtime_error("asked to fail " + std::to_string(me.id()));
         const int all = co_await count_members(me.world());
         co_return all;
       }},
      {one_more, [](const int& x) { return x + 1; }},
      {add_to, [](int& x, int more) { x += more; }},
      {sleep_ms,
       [](int time) -> task<void> {
         co_await sleep_for(std::chrono::milliseconds(time));
       }},
      {block_ms, blocking([](int time) {
         std::this_thread::sleep_for(std::chrono::milliseconds(time));
       })},
      {all_but_one_enter,
       [](worker& me, int which, int time) -> task<void> {
         if (me.id() == which) co_await sleep_for(std::chrono::milliseconds(time));
         (void)co_await count_members(me.world());
       }},
      {passed_on,
       [](worker& me, int x) -> task<int> {
         if (me.rank() == 0) co_await me.world().send(object(x), to{1});
         int got = x;
         if (me.rank() == 1) co_await me.world().recv(object(got), from{0});
         co_return got;
       }},
      {passed_on_slowly,
       [](worker& me, int x, int time) -> task<int> {
         int got = x;
         if (me.rank() == 0) {
           co_await me.world().send(object(x), to{1});
           co_await sleep_for(std::chrono::milliseconds(time));
         } else {
           co_await me.world().recv(object(got), from{0});
         }
         co_return got;
       }},
      {sends_too_much,
       [](worker& me, int which, int messages) -> task<void> {
         const int x = 7;
         for (int i = 0; me.id() != which && i < messages; ++i)
           co_await me.world().send(object(x), to{static_cast<rank_t>(which)});
         if (me.id() == which) throw std::runtime_error("it received nothing");
       }},
      {raise_signal,
       [](int number) {
         ::raise(number);
         return number;
       }},
      {many_texts,
       // Of 1 KiB each.
       [](int thousands) {
         return std::vector<std::string>(static_cast<std::size_t>(thousands) * 1024,
                                         std::string(1024, 'x'));
       }},
      {block_or_fail, blocking([](const worker& me, int which, int time) {
         // The others have begun it by then, and are told in the middle of it.
         if (me.id() == which) {
           std::this_thread::sleep_for(std::chrono::milliseconds(100));
           throw std::runtime_error("it does not block");
         }
         std::this_thread::sleep_for(std::chrono::milliseconds(time));
       })},
      {slow_one,
       // How often it was run in this process.
       [](int time) -> task<int> {
         static std::atomic<int> runs{0};
         const int own = ++runs;
         co_await sleep_for(std::chrono::milliseconds(time));
         co_return own;
       }},
      {device_here,
       [](const worker& me) { return me.stream() ? me.place().device : -1; }},
      {cpu_here, [](const worker& me) { return me.cpu(); }},
      {sum_on_devices,
       [](worker& me, int x) -> task<int> {
         const std::vector<int> own{x + me.id()};
         const tensor given = tensor::copy_of(own);
         tensor y = co_await me.copy_of(given);
         co_await me.world().all_reduce(y, sum);
         const tensor all = co_await worker::host_copy_of(y);
         co_return all.as<int>()[0];
       }},
      {weights_of, read_weights},
      {stays_here, write_pid_and_stay},
      {blocks_here, blocking(write_pid_and_stay)},
      {exchanged, [](int& x, int next) { return std::exchange(x, next); }},
      {same_any, [](any_value x, int) { return x; }},
      {any_function("total", alone), blocking([](std::span<const any_value> given) {
         double total = 0;
         for (const any_value& each : given) total += each.as<double>();
         return total;
       })},
      {any_function("kinds_of", alone),
       [](std::span<const any_value> given) -> task<any_value> {
         std::string all;
         for (const any_value& each : given)
           all +=
               std::string(all.empty() ? "" : ", ") + std::string(describe(each.kind()));
         co_return all;
       }},
      {any_function("kept_list", alone),
       [](std::span<const any_value> given) {
         return std::vector<any_value>(given.begin(), given.end());
       }},
      {any_function("scale_of", alone),
       [](const worker& me, std::span<const any_value> given) {
         return part_of_model{static_cast<int>(given.size()) + me.id()};
       }},
      {any_function("meet"),
       [](worker& me, std::span<const any_value>) -> task<any_value> {
         const int all = co_await count_members(me.world());
         co_return all;
       }},
  };
  return all;
}

}  // namespace manyworlds::spmd_tests
