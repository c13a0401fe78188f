#include "spmd/builtin_functions.hpp"

#include <span>

#include "manyworlds/world/world.hpp"
#include "spmd/local_places.hpp"
#include "spmd/worker_device.hpp"
#include "spmd/worker_plugins.hpp"

namespace manyworlds::inline v0::detail {

namespace {

/// The controller does not know what a register holds: the worker looks.
task<any_value> copy_any(const held_value& from) {
  if (*from.type == type_token::of<tensor>())
    co_return any_value(
        co_await worker::host_copy_of(*static_cast<const tensor*>(from.value.get())));
  if (from.read == nullptr) {
    throw value_error("a register of " + std::string(from.type->name()) +
                      ", which is no value");
  }
  co_return from.read(from.value.get());
}

constexpr remote_function<any_value(const held_value&)> held_of(
    const remote_function<any_value(const any_value&)>& same) {
  return {same.name(), alone};
}

}  // namespace

const function_table& builtin_functions() {
  static const function_table all{
      {put_function,
       [](const worker& me, tensor given) -> task<tensor> {
         if (!access::core(me).device) co_return given;
         co_return co_await me.copy_of(given);
       }},
      {empty_function,
       [](const worker& me, shape of, dtype type) -> task<tensor> {
         const worker_facts& facts = access::core(me);
         if (!facts.device) co_return tensor::zeros(of, type);
         co_return co_await facts.device->zeros(of, type);
       }},
      {copy_function, worker::host_copy_of},
      {held_of(copy_any_function), copy_any},
      {local_function,
       [](const worker& me, const held_value& held) {
         const worker_facts& facts = access::core(me);
         if (facts.locals == nullptr)
           throw value_error("its worker is in another process than the controller");
         facts.locals->fill(facts.call, held);
       }},
      {load_function, blocking([](const worker& me, const std::string& file) {
         return access::core(me).plugins->load(file);
       })},
      {find_content_function,
       blocking([](const worker& me, const std::string& digest, std::uint64_t bytes,
                   std::int64_t pid, int descriptor) {
         return access::core(me).plugins->find_content(digest, bytes, pid, descriptor);
       })},
      {load_content_function,
       blocking([](const worker& me, const std::string& name, const std::string& digest,
                   std::uint64_t bytes, std::int64_t pid, int descriptor,
                   const tensor& given) {
         worker_plugins& all = *access::core(me).plugins;
         // A worker that was replaced finds it here again.
         static_cast<void>(all.find_content(digest, bytes, pid, descriptor));
         return all.load_content(name, digest,
                                 std::as_bytes(given.as<const std::uint8_t>()));
       })},
      {broadcast_function,
       [](worker& me, tensor& data, rank_t at) -> task<void> {
         co_await me.world().broadcast(data, root(at));
       }},
      {all_reduce_function,
       [](worker& me, tensor& data, reduction by) -> task<void> {
         co_await me.world().all_reduce(data, by);
       }},
      {all_gather_function,
       [](worker& me, const tensor& in, tensor& out) -> task<void> {
         co_await me.world().all_gather(in, out);
       }},
      {gather_function,
       [](worker& me, const tensor& in, tensor& out, rank_t at) -> task<void> {
         co_await me.world().gather(in, out, root(at));
       }},
      {scatter_function,
       [](worker& me, const tensor& in, tensor& out, rank_t at) -> task<void> {
         co_await me.world().scatter(in, out, root(at));
       }},
      {transfer_function,
       [](worker& me, const tensor& from, tensor& into) -> task<void> {
         if (me.rank() == 0) {
           co_await me.world().send(from, to(1));
         } else {
           co_await me.world().recv(into, manyworlds::from(0));
         }
       }},
  };
  return all;
}

}  // namespace manyworlds::inline v0::detail
