//! Files on object stores and web servers, as storages.
//!
//! ```
//! use pelton_remote::{RemoteOptions, Stores};
//! use pelton_storage::{RangeRead, Storage};
//!
//! # use std::io::{BufRead, BufReader, Write};
//! # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
//! # let address = listener.local_addr()?;
//! # std::thread::spawn(move || {
//! #     for stream in listener.incoming().flatten() {
//! #         let (mut out, mut range) = (stream.try_clone().unwrap(), (0, 10));
//! #         for line in BufReader::new(stream).lines().map_while(Result::ok) {
//! #             let (name, value) = line.split_once(": ").unwrap_or((&line, ""));
//! #             if name.eq_ignore_ascii_case("range") {
//! #                 let (from, to) = value["bytes=".len()..].split_once('-').unwrap();
//! #                 range = (from.parse().unwrap(), to.parse::<usize>().unwrap().min(10));
//! #             } else if line.is_empty() {
//! #                 let body = &"hello world"[range.0..=range.1];
//! #                 let (from, to, length) = (range.0, range.1, body.len());
//! #                 write!(out, "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{to}/11\r\nContent-Length: {length}\r\nETag: \"a\"\r\n\r\n{body}").unwrap();
//! #             }
//! #         }
//! #     }
//! # });
//! let stores = Stores::new(RemoteOptions::default(), Default::default());
//! let (file, head) = stores.open(&format!("http://{address}/hello.txt"), 5)?;
//! assert_eq!((file.bytes(), &head[..]), (11, &b"hello"[..]));
//! let mut buffer = [0; 5];
//! file.read_batch(&mut [RangeRead { offset: 6, buffer: &mut buffer, filled: 0 }])?;
//! assert_eq!(buffer, *b"world");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Stores`] opens `s3://`, `gs://`, `az://` and `http(s)://` addresses and lists the files that match a pattern. A file is
//! a [`RemoteObject`], a [`Storage`](pelton_storage::Storage): a batch of ranges becomes few concurrent requests, each
//! repeated as long as that may help. A [`RemoteFolder`] is written as well. A [`DiskCache`] over it keeps fetched blocks in a folder.
//!
//! Reading order: `stores` finds the client of an address, `object` reads a file, `folder` writes files, `merge` joins ranges into requests,
//! `attempts` repeats them, `failure` says what went wrong, `headers` corrects answers, `answer`
//! limits them, `disk_cache` keeps blocks.

mod options;

mod address;
mod answer;
mod aws_profile;
mod failure;
mod headers;
mod merge;
mod runtime;

mod attempts;
mod folder;
mod listing;
mod object;

mod stores;

mod cached;
mod disk_cache;
mod segment;

pub use cached::Cached;
pub use disk_cache::DiskCache;
pub use folder::RemoteFolder;
pub use object::RemoteObject;
pub use options::RemoteOptions;
pub use stores::Stores;
