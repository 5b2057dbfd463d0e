//! Opens files by their addresses: `s3://`, `gs://`, `az://` and `http(s)://`.
//!
//! Each bucket has one client with reusable connections; all web servers share one. Clients are configured from the
//! environment, as in other programs: `AWS_*`, `GOOGLE_*`, `AZURE_STORAGE_*`.

use std::collections::HashMap;
use std::fmt::{self, Debug, Display};
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::http::HttpBuilder;
use object_store::path::Path;
use object_store::{ClientConfigKey, ClientOptions, HeaderValue, ObjectStore, RetryConfig};
use pelton_storage::{StorageError, shown_address};
use reqwest::redirect::Policy;
use tokio::sync::{Semaphore, watch};
use url::Url;

use crate::address::{Address, Secrets, wrong};
use crate::attempts::Limits;
use crate::aws_profile::{Profile, profile};
use crate::failure::{Noting, NotingConnector};
use crate::folder::RemoteFolder;
use crate::listing;
use crate::object::RemoteObject;
use crate::options::RemoteOptions;

/// Object stores and web servers.
pub struct Stores {
    limits: Arc<Limits>,
    open: Mutex<HashMap<String, Arc<dyn ObjectStore>>>,
    web: WebClients,
    secrets: Mutex<Secrets>,
}

impl Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stores").field(&self.limits.options).finish()
    }
}

/// The clients of all web servers, one for `http://` and one for `https://`; no redirect leaves `https://`.
#[derive(Debug, Default)]
struct WebClients([Mutex<Option<reqwest::Client>>; 2]);

/// A client that sends a user's name and password if an address has them.
#[derive(Clone, Debug)]
struct WebClient {
    client: reqwest::Client,
    authorization: Option<HeaderValue>,
}

impl WebClients {
    fn client(&self, is_encrypted: bool) -> reqwest::Result<reqwest::Client> {
        let mut client = self.0[usize::from(is_encrypted)]
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = &*client {
            return Ok(client.clone());
        }
        let made = reqwest::Client::builder()
            .user_agent(concat!("pelton/", env!("CARGO_PKG_VERSION")))
            .https_only(is_encrypted)
            .http1_only()
            .redirect(Policy::limited(REDIRECTS))
            // Otherwise the next server would learn the query, which may be a signature.
            .referer(false)
            .connect_timeout(CONNECTING)
            .build()?;
        Ok(client.insert(made).clone())
    }
}

impl HttpConnector for WebClient {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Noting(HttpClient::new(self.clone()))))
    }
}

impl HttpService for WebClient {
    fn call<'a, 'b>(
        &'a self,
        mut request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        if let Some(authorization) = &self.authorization {
            let headers = request.headers_mut();
            headers.insert("authorization", authorization.clone());
        }
        HttpService::call(&self.client, request)
    }
}

impl Stores {
    /// Waiting ends early once `interrupt` is set.
    pub fn new(options: RemoteOptions, interrupt: Arc<AtomicBool>) -> Stores {
        crate::runtime::choose_cryptography();
        Stores {
            limits: Arc::new(Limits {
                options,
                permits: Semaphore::new(options.in_flight.max(1)),
                gave_up: watch::Sender::default(),
                interrupt,
            }),
            open: Mutex::default(),
            web: WebClients::default(),
            secrets: Mutex::default(),
        }
    }

    /// The name that stands for an address: without its user, password and query, which only this object keeps.
    pub fn name(&self, url: &str) -> String {
        self.secrets().name(url)
    }

    fn secrets(&self) -> MutexGuard<'_, Secrets> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a file by its address or its name and fetches its first bytes, at most `head_bytes`.
    ///
    /// Errors: the address is invalid, or the server refuses.
    pub fn open(
        &self,
        url: &str,
        head_bytes: u64,
    ) -> Result<(RemoteObject, Vec<u8>), StorageError> {
        let full = self.secrets().address(url);
        let address = self.address(&full)?;
        let path = Path::parse(&address.path).map_err(|error| {
            wrong(
                url,
                format!("its path cannot be asked for ({error})"),
                "check the name",
            )
        })?;
        RemoteObject::open(
            address.store,
            path,
            shown_address(url).into_owned(),
            Arc::clone(&self.limits),
            head_bytes,
        )
    }

    /// The files that match a pattern, in ascending order: `*`, `?` and `[…]` within the name of a folder or file.
    ///
    /// Errors: the pattern is for a web server, which cannot list its files; nothing matches; the store refuses.
    pub fn matching(&self, pattern: &str) -> Result<Vec<String>, StorageError> {
        let address = self.address(pattern)?;
        if address.root.ends_with("//") {
            let what = "a folder with an empty name cannot be listed";
            return Err(wrong(pattern, what, "write out the names"));
        }
        if address.path.is_empty() {
            let what = "a web server does not list its files";
            return Err(wrong(
                pattern,
                what,
                "write out the names, or a range such as {000..099}",
            ));
        }
        listing::matching(&address, &shown_address(pattern), &self.limits)
    }

    /// A folder of an object store, to be read and written whole files at a time.
    ///
    /// Errors: an address that is invalid, or of a web server, which cannot be written to.
    pub fn folder(&self, url: &str) -> Result<RemoteFolder, StorageError> {
        let url = url.trim_end_matches('/');
        let is_web = url
            .get(..4)
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
        if is_web {
            let what = "a folder of a web server cannot be listed or written to";
            return Err(wrong(url, what, "give s3://, gs:// or az://"));
        }
        let Address { path, root, .. } = self.address(url)?;
        let (scheme, rest) = root.split_once("://").unwrap_or_default();
        let (host, before) = rest.split_once('/').unwrap_or((rest, ""));
        let store = bucket(scheme, host, before, &root, &WHOLE_FILES)?;
        let shown = shown_address(url).into_owned();
        RemoteFolder::new(store, &path, shown, Arc::clone(&self.limits))
    }

    #[cfg(test)]
    pub(crate) fn limits(&self) -> Arc<Limits> {
        Arc::clone(&self.limits)
    }

    /// Whether a file with exactly this name exists, even if the name would be a pattern.
    pub fn is_there(&self, url: &str) -> bool {
        self.open(url, 1).is_ok()
    }

    fn address(&self, url: &str) -> Result<Address, StorageError> {
        let malformed = |what: String| {
            wrong(
                url,
                what,
                "write SCHEME://HOST/NAME, such as s3://bucket/train.tar",
            )
        };
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| malformed("it is not an address".into()))?;
        let scheme = scheme.to_ascii_lowercase();
        if scheme == "http" || scheme == "https" {
            let parsed = Url::parse(url)
                .map_err(|error| malformed(format!("it is not an address ({error})")))?;
            return Ok(Address {
                store: self.web_file(&parsed)?,
                path: String::new(),
                root: url.to_owned(),
            });
        }
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        if host.is_empty() || path.is_empty() {
            return Err(malformed("it names no file of a bucket".into()));
        }
        if path.ends_with('/') {
            return Err(malformed("it ends in / and so names no file".into()));
        }
        // The part before an empty folder name belongs to the bucket's prefix: `Path` has no empty parts.
        let from = match path.rfind("//") {
            Some(at) => at + 2,
            None => usize::from(path.starts_with('/')),
        };
        let (before, path) = path.split_at(from);
        let root = format!("{scheme}://{host}/{before}");
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let store = match open.get(&root) {
            Some(store) => Arc::clone(store),
            None => {
                let store = bucket(&scheme, host, before, &root, &RANGES)?;
                open.insert(root.clone(), Arc::clone(&store));
                store
            }
        };
        Ok(Address {
            store,
            path: path.to_owned(),
            root,
        })
    }

    /// Each file of a web server has its own store, which keeps the part from `?` on.
    fn web_file(&self, url: &Url) -> Result<Arc<dyn ObjectStore>, StorageError> {
        let client = self.web.client(url.scheme() == "https");
        // The request has the address without name and password, and both as a header.
        let built = client.and_then(|client| Ok((client.get(url.clone()).build()?, client)));
        let (request, client) = built.map_err(|error| unusable(url.as_str(), &error))?;
        let authorization = request.headers().get("authorization").cloned();
        let built = HttpBuilder::new()
            .with_url(request.url().as_str())
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .with_retry(RANGES.retry())
            .with_http_connector(WebClient {
                client,
                authorization,
            })
            .build();
        let store = built.map_err(|error| unusable(url.as_str(), &error))?;
        Ok(Arc::new(store))
    }
}

fn unusable(url: &str, error: &impl Display) -> StorageError {
    wrong(
        url,
        format!("no client can be made ({error})"),
        "check the settings in the environment",
    )
}

/// Most redirects of a request.
const REDIRECTS: usize = 10;
/// Longest time to connect.
const CONNECTING: Duration = Duration::from_secs(5);

/// How often a client repeats requests, and how long one may take.
struct Patience {
    retries: usize,
    timeout: &'static str,
}

/// For parts of files. The caller limits silence and deadlines, and repeats attempts, because it knows which bytes have
/// arrived; a client alone would end long answers after 30 s.
const RANGES: Patience = Patience {
    retries: 0,
    timeout: "1day",
};

/// For whole files, sent in parts of 16 MiB.
const WHOLE_FILES: Patience = Patience {
    retries: 6,
    timeout: "5min",
};

impl Patience {
    fn retry(&self) -> RetryConfig {
        RetryConfig {
            max_retries: self.retries,
            ..RetryConfig::default()
        }
    }
}

/// The store of a bucket or container, configured from the environment; of the files that begin with `before`.
fn bucket(
    scheme: &str,
    host: &str,
    before: &str,
    root: &str,
    patience: &Patience,
) -> Result<Arc<dyn ObjectStore>, StorageError> {
    let built: object_store::Result<Arc<dyn ObjectStore>> = match scheme {
        "s3" | "s3a" => match before.strip_suffix('/') {
            Some(before) => amazon(&format!("{host}/{}", encoded(before)), patience),
            None => amazon(host, patience),
        }
        .map(|store| Arc::new(store) as _),
        _ if !before.is_empty() => {
            let what = "a folder of its name is empty, which only s3:// can ask for";
            return Err(wrong(root, what, "check the name"));
        }
        "gs" => GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(host)
            .with_config(
                GoogleConfigKey::Client(ClientConfigKey::Timeout),
                patience.timeout,
            )
            .with_retry(patience.retry())
            .with_http_connector(NotingConnector)
            .build()
            .map(|store| Arc::new(store) as _),
        "az" | "azure" | "abfs" | "abfss" => MicrosoftAzureBuilder::from_env()
            .with_url(root)
            .with_config(
                AzureConfigKey::Client(ClientConfigKey::Timeout),
                patience.timeout,
            )
            .with_retry(patience.retry())
            .with_http_connector(NotingConnector)
            .build()
            .map(|store| Arc::new(store) as _),
        _ => {
            let what = format!("{scheme}:// is not known");
            return Err(wrong(
                root,
                what,
                "give s3://, gs://, az://, http:// or https://",
            ));
        }
    };
    built.map_err(|error| unusable(root, &error))
}

/// Part of a path as in addresses.
fn encoded(path: &str) -> String {
    let mut encoded = String::new();
    for byte in path.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => encoded.push(char::from(byte)),
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

/// If the environment has no keys, uses those of a profile in the user's files.
fn amazon(bucket: &str, patience: &Patience) -> object_store::Result<object_store::aws::AmazonS3> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    let is_set = |builder: &AmazonS3Builder, key| builder.get_config_value(&key).is_some();
    let Profile {
        access_key_id,
        secret_access_key,
        session_token,
        region,
        endpoint_url,
    } = profile();
    if !is_set(&builder, AmazonS3ConfigKey::AccessKeyId)
        && let (Some(id), Some(secret)) = (access_key_id, secret_access_key)
    {
        builder = builder
            .with_access_key_id(id)
            .with_secret_access_key(secret);
        if let Some(token) = session_token {
            builder = builder.with_token(token);
        }
    }
    if let Some(region) = region
        && !is_set(&builder, AmazonS3ConfigKey::Region)
        && !is_set(&builder, AmazonS3ConfigKey::DefaultRegion)
    {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = endpoint_url
        && !is_set(&builder, AmazonS3ConfigKey::Endpoint)
    {
        builder = builder.with_endpoint(endpoint);
    }
    // A user who sets such an endpoint wants plain HTTP.
    let endpoints = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint];
    let mut endpoints = endpoints
        .iter()
        .filter_map(|key| builder.get_config_value(key));
    if endpoints
        .next()
        .is_some_and(|endpoint| endpoint.starts_with("http://"))
    {
        builder = builder.with_allow_http(true);
    }
    builder
        .with_config(
            AmazonS3ConfigKey::Client(ClientConfigKey::Timeout),
            patience.timeout,
        )
        .with_retry(patience.retry())
        .with_http_connector(NotingConnector)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_empty_parts() {
        let stores = Stores::new(RemoteOptions::default(), Arc::default());
        for (url, root, path) in [
            ("s3://bucket/a/b.tar", "s3://bucket/", "a/b.tar"),
            ("s3://bucket//b.tar", "s3://bucket//", "b.tar"),
            ("s3://bucket/a//b/c.tar", "s3://bucket/a//", "b/c.tar"),
            ("s3://bucket/a[1].tar", "s3://bucket/", "a[1].tar"),
        ] {
            let address = stores.address(url).expect(url);
            assert_eq!((&*address.root, &*address.path), (root, path));
        }
        for (url, message) in [
            ("gs://bucket/a//b.tar", "only s3:// can ask for"),
            ("s3://bucket/a/", "it ends in / and so names no file"),
        ] {
            let error = stores.address(url).err().expect(url).to_string();
            assert!(error.contains(message), "{error}");
        }
        let error = stores
            .matching("s3://bucket/a//*.tar")
            .expect_err("refused");
        assert!(error.to_string().contains("cannot be listed"), "{error}");
        assert_eq!(encoded("a b/ü-1.~_"), "a%20b/%C3%BC-1.~_");
    }
}
