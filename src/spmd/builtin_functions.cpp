#include "spmd/builtin_functions.hpp"

#include "manyworlds/world/world.hpp"
#include "spmd/local_places.hpp"

namespace manyworlds::inline v0::detail {

const function_table& builtin_functions() {
  static const function_table all{
      {put_function, [](tensor given) { return given; }},
      {empty_function, [](shape of, dtype type) { return tensor::zeros(of, type); }},
      {copy_function,
       [](const tensor& from) { return tensor::copy_of(from.view(), from.shape()); }},
      {copy_any_function, [](const any_value& from) { return from; }},
      {local_function,
       [](const worker& me, const held_value& held) {
         const worker_facts& facts = access::core(me);
         if (facts.locals == nullptr)
           throw value_error("its worker is in another process than the controller");
         facts.locals->fill(facts.call, held);
       }},
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
