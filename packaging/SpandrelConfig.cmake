# find_package(Spandrel) gives the targets Spandrel::spandrel (shared) and
# Spandrel::static, of the recoverable heap Spandrel::heap and
# Spandrel::heap_static, and of durable states Spandrel::durable (shared).
get_filename_component(_spandrel_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET Spandrel::spandrel)
  add_library(Spandrel::spandrel SHARED IMPORTED)
  set_target_properties(Spandrel::spandrel PROPERTIES
    IMPORTED_LOCATION "${_spandrel_prefix}/lib/libspandrel.so"
    IMPORTED_SONAME "libspandrel.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_spandrel_prefix}/include")
  add_library(Spandrel::static STATIC IMPORTED)
  set_target_properties(Spandrel::static PROPERTIES
    IMPORTED_LOCATION "${_spandrel_prefix}/lib/libspandrel.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_spandrel_prefix}/include"
    INTERFACE_LINK_LIBRARIES "pthread;dl;m")
  add_library(Spandrel::heap SHARED IMPORTED)
  set_target_properties(Spandrel::heap PROPERTIES
    IMPORTED_LOCATION "${_spandrel_prefix}/lib/libspandrel_heap.so"
    IMPORTED_SONAME "libspandrel_heap.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_spandrel_prefix}/include")
  add_library(Spandrel::heap_static STATIC IMPORTED)
  set_target_properties(Spandrel::heap_static PROPERTIES
    IMPORTED_LOCATION "${_spandrel_prefix}/lib/libspandrel_heap.a"
    INTERFACE_INCLUDE_DIRECTORIES "${_spandrel_prefix}/include"
    INTERFACE_LINK_LIBRARIES "pthread")
  add_library(Spandrel::durable SHARED IMPORTED)
  set_target_properties(Spandrel::durable PROPERTIES
    IMPORTED_LOCATION "${_spandrel_prefix}/lib/libspandrel_durable.so"
    IMPORTED_SONAME "libspandrel_durable.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_spandrel_prefix}/include")
endif()
set(Spandrel_FOUND TRUE)
