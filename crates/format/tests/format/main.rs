//! Files of every format, in one program, so that it is linked once.

mod array_records;
mod arrays;
mod class_maps;
mod coded_tables;
#[cfg(feature = "columns")]
mod columns;
mod columns_by_name;
#[cfg(feature = "columns")]
mod columns_of_writers;
mod damage;
mod folder_indexes;
mod fvecs;
mod json_labels;
mod json_lines;
mod odd_tables;
mod opening;
mod packed_files;
mod pixels;
mod quoted_tables;
mod real_data;
mod remote;
mod row_layouts;
#[cfg(feature = "columns")]
mod same_tables;
mod samples;
mod several_labels;
mod shards;
mod sidecars;
mod streams;
mod support;
mod tar_files;
mod tfrecords;
mod windows;
