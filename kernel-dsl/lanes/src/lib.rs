//! What generated CPU kernels run on: lanes of one width on every instruction set, micro-kernels
//! over them, packed weights, views and a thread pool that parks.
