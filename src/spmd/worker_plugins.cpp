#include "spmd/worker_plugins.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "exception_text.hpp"
#include "manyworlds/detail/assertion.hpp"
#include "spmd/builtin_functions.hpp"
#include "spmd/content_digest.hpp"

namespace manyworlds::inline v0::detail {

namespace {

struct library_closer {
  void operator()(void* library) const noexcept { ::dlclose(library); }
};
using opened_library = std::unique_ptr<void, library_closer>;

[[noreturn]] void refuse_plugin(const std::string& name, const std::string& why) {
  throw std::runtime_error(fmt::format("plugin {}: {}", name, why));
}

std::string loader_text() {
  const char* const said = ::dlerror();
  return said != nullptr ? said : "the loader did not say why";
}

/// One at a time: of workers that are threads one may close a refused library that the
/// other reads. The loader has such a lock too, which tools that look for races do not
/// see.
std::mutex& loader_mutex() {
  static std::mutex one;
  return one;
}

bool is_known_to_loader(const std::string& path) {
  const std::lock_guard lock(loader_mutex());
  return opened_library(::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) != nullptr;
}

std::string build_text(const plugin_build& b) {
  return fmt::format(
      "Manyworlds {}.{}.{} with C++ ABI {}, standard library {}.{} and layout {:016x}",
      b.major_part, b.minor_part, b.patch_part, b.compiler, b.standard_library,
      b.library_layout, b.layout);
}

/// Returns what the library defines as its plugin. Nothing is read before it is known to
/// be large enough, and nothing but its build before that is right.
const plugin& defined_plugin(void* library, const std::string& name) {
  const void* const found = ::dlsym(library, "manyworlds_plugin");
  if (found == nullptr)
    refuse_plugin(name, "it defines no mw::plugin manyworlds_plugin: " + loader_text());
  Dl_info where{};
  const ElfW(Sym)* symbol = nullptr;
  // C's interface: the pointer becomes one to a symbol.
  if (::dladdr1(found, &where, reinterpret_cast<void**>(const_cast<ElfW(Sym)**>(&symbol)),
                RTLD_DL_SYMENT) == 0 ||
      symbol == nullptr || symbol->st_size < sizeof(plugin) ||
      reinterpret_cast<std::uintptr_t>(found) % alignof(plugin) != 0) {
    refuse_plugin(name, "what it defines as manyworlds_plugin is no mw::plugin");
  }
  const plugin& of = *static_cast<const plugin*>(found);
  const plugin_facts& facts = access::core(of);
  const plugin_build here = plugin_build::here();
  if (facts.build != here) {
    refuse_plugin(name, "it is of " + build_text(facts.build) + ", and this worker of " +
                            build_text(here));
  }
  if (facts.current() != executor::current()) {
    refuse_plugin(name,
                  "it has a library of its own: link this program with -rdynamic, or "
                  "both with the shared library");
  }
  return of;
}

}  // namespace

const function_table::entry* worker_plugins::find(std::string_view name) const noexcept {
  if (const auto* const own = of_program_.find(name)) return own;
  if (const auto* const builtin = builtin_functions().find(name)) return builtin;
  for (const loaded& each : all_) {
    if (const auto* const found = each.functions->find(name)) return found;
  }
  return nullptr;
}

void worker_plugins::check_names(const function_table& more,
                                 const std::string& of) const {
  for (const function_table::entry& each : more.entries()) {
    if (find(each.name()) == nullptr) continue;
    const auto by = std::ranges::find_if(all_, [&](const loaded& other) {
      return other.functions->find(each.name()) != nullptr;
    });
    refuse_plugin(of,
                  fmt::format("a function \"{}\" is there already, of {}", each.name(),
                              by == all_.end() ? "the program" : by->name));
  }
}

const worker_plugins::loaded& worker_plugins::open(const std::string& name,
                                                   const std::string& path) {
  MW_ASSERT(executor::current() != nullptr,
            "a plugin is compared with its loader's turn");
  const std::lock_guard lock(loader_mutex());
  opened_library library(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!library) refuse_plugin(name, loader_text());
  const auto same = std::ranges::find(all_, library.get(), &loaded::library);
  if (same != all_.end()) return *same;
  const plugin& of = defined_plugin(library.get(), name);
  const function_table* functions = nullptr;
  try {
    functions = &access::core(of).functions();
  } catch (...) {
    // As text: the exception may be the plugin's.
    const std::string why = handled_exception_text();
    refuse_plugin(name, "its functions: " + why);
  }
  check_names(*functions, name);
  all_.push_back({name, library.get(), &of, functions});
  static_cast<void>(library.release());
  return all_.back();
}

plugin worker_plugins::load(const std::string& file) { return *open(file, file).object; }

bool worker_plugins::find_content(const std::string& digest, std::uint64_t bytes,
                                  std::int64_t pid, int descriptor) {
  if (uploaded_.contains(digest) || contents_.contains(digest)) return true;
  content_file found = content_file::of_process(pid, descriptor, bytes, digest);
  if (!found) return false;
  contents_.emplace(digest, std::move(found));
  return true;
}

content_file worker_plugins::take_content(const std::string& name,
                                          const std::string& digest,
                                          std::span<const std::byte> given) {
  const auto at = contents_.find(digest);
  if (at != contents_.end()) {
    content_file found = std::move(at->second);
    contents_.erase(at);
    return found;
  }
  if (given.empty()) {
    refuse_plugin(name,
                  "it is empty, or this worker cannot open what was uploaded before it "
                  "came");
  }
  const std::string found = digest_of(given);
  if (found != digest) {
    refuse_plugin(
        name, fmt::format("what came has the SHA-256 {}, in place of {}", found, digest));
  }
  content_file made = content_file::in_memory(given);
  return made ? std::move(made) : content_file::on_disk(given);
}

plugin worker_plugins::load_content(const std::string& name, const std::string& digest,
                                    std::span<const std::byte> given) {
  const auto before = uploaded_.find(digest);
  if (before != uploaded_.end()) return before->second;
  content_file file;
  try {
    file = take_content(name, digest, given).executable();
  } catch (const std::system_error& e) {
    refuse_plugin(name, e.what());
  }
  // The loader knows a library by its path for as long as it has it: no other file may
  // get this one's.
  const std::string path = file.path();
  const plugin* of = nullptr;
  try {
    of = open(name, path).object;
  } catch (...) {
    if (is_known_to_loader(path)) file.keep_open();
    throw;
  }
  file.keep_open();
  uploaded_.emplace(digest, *of);
  return *of;
}

}  // namespace manyworlds::inline v0::detail
