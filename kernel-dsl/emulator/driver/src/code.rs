//! Result codes: their numbers, their names, and what they say.

/// What a driver call returns: a number that the driver interface fixes.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Code(pub(crate) u32);

/// A call's outcome before it crosses the boundary.
pub(crate) type Outcome<T = ()> = Result<T, Code>;

macro_rules! codes {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        #[allow(dead_code, reason = "some codes are only named to those who ask for their text")]
        impl Code {
            $(
                #[doc = $text]
                pub(crate) const $name: Code = Code($value);
            )*
        }

        /// Number, name and text of every code that this driver knows, in order of number; name and
        /// text end with a NUL, as they are handed out as C strings.
        pub(crate) const CODES: &[(u32, &str, &str)] = &[
            $(($value, concat!("CUDA_", stringify!($name), "\0"), concat!($text, "\0")),)*
        ];
    };
}

codes! {
    SUCCESS = 0, "no error";
    ERROR_INVALID_VALUE = 1, "an argument is outside of what the call accepts";
    ERROR_OUT_OF_MEMORY = 2, "not enough memory";
    ERROR_NOT_INITIALIZED = 3, "the driver is not initialized";
    ERROR_DEINITIALIZED = 4, "the driver is shutting down";
    ERROR_DEVICE_UNAVAILABLE = 46, "the device is not available";
    ERROR_NO_DEVICE = 100, "there is no device";
    ERROR_INVALID_DEVICE = 101, "no device has this number";
    ERROR_INVALID_IMAGE = 200, "the module's image is not valid";
    ERROR_INVALID_CONTEXT = 201, "no context is current, or it is not the right one";
    ERROR_NO_BINARY_FOR_GPU = 209, "the image holds no code for this device";
    ERROR_ECC_UNCORRECTABLE = 214, "memory had an error that could not be corrected";
    ERROR_UNSUPPORTED_LIMIT = 215, "the device does not have this limit";
    ERROR_PEER_ACCESS_UNSUPPORTED = 217, "these devices cannot access each other";
    ERROR_INVALID_PTX = 218, "the PTX text could not be compiled";
    ERROR_UNSUPPORTED_PTX_VERSION = 222, "the PTX version is newer than the driver";
    ERROR_FILE_NOT_FOUND = 301, "the file was not found";
    ERROR_OPERATING_SYSTEM = 304, "the operating system refused a request";
    ERROR_INVALID_HANDLE = 400, "the handle names no live object of this kind";
    ERROR_ILLEGAL_STATE = 401, "the object is not in a state that allows this";
    ERROR_NOT_FOUND = 500, "the symbol was not found";
    ERROR_NOT_READY = 600, "the work is not complete";
    ERROR_ILLEGAL_ADDRESS = 700, "a kernel accessed memory that is not there";
    ERROR_LAUNCH_OUT_OF_RESOURCES = 701, "the launch needs more than the device has";
    ERROR_LAUNCH_TIMEOUT = 702, "the kernel did not end";
    ERROR_PEER_ACCESS_ALREADY_ENABLED = 704, "access to the peer was enabled before";
    ERROR_PEER_ACCESS_NOT_ENABLED = 705, "access to the peer was not enabled";
    ERROR_PRIMARY_CONTEXT_ACTIVE = 708, "the primary context is active";
    ERROR_CONTEXT_IS_DESTROYED = 709, "the context was destroyed";
    ERROR_ASSERT = 710, "an assertion in a kernel failed";
    ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712, "host memory was registered before";
    ERROR_HOST_MEMORY_NOT_REGISTERED = 713, "host memory was not registered";
    ERROR_HARDWARE_STACK_ERROR = 714, "the hardware's stack failed";
    ERROR_ILLEGAL_INSTRUCTION = 715, "a kernel ran an illegal instruction";
    ERROR_MISALIGNED_ADDRESS = 716, "a kernel accessed a misaligned address";
    ERROR_INVALID_ADDRESS_SPACE = 717, "a kernel accessed an address of the wrong space";
    ERROR_INVALID_PC = 718, "a kernel jumped out of its code";
    ERROR_LAUNCH_FAILED = 719, "a kernel failed";
    ERROR_NOT_PERMITTED = 800, "the call is not permitted here";
    ERROR_NOT_SUPPORTED = 801, "this driver does not support the call";
    ERROR_STREAM_CAPTURE_UNSUPPORTED = 900, "the operation is not permitted in a capture";
    ERROR_STREAM_CAPTURE_INVALIDATED = 901, "an earlier error made the capture invalid";
    ERROR_STREAM_CAPTURE_MERGE = 902, "the operation would merge two captures";
    ERROR_STREAM_CAPTURE_UNMATCHED = 903, "the capture did not begin in this stream";
    ERROR_STREAM_CAPTURE_UNJOINED = 904, "a fork of the capture was not joined";
    ERROR_STREAM_CAPTURE_ISOLATION = 905, "a dependency would cross the capture's border";
    ERROR_STREAM_CAPTURE_IMPLICIT = 906, "the default stream would depend on a capture";
    ERROR_CAPTURED_EVENT = 907, "the event was last recorded in a capture";
    ERROR_STREAM_CAPTURE_WRONG_THREAD = 908, "the capture began in another thread";
    ERROR_GRAPH_EXEC_UPDATE_FAILURE = 910, "the graph differs too much from what was instantiated";
    ERROR_INVALID_CLUSTER_SIZE = 912, "the cluster size is not possible";
    ERROR_UNKNOWN = 999, "the driver failed; its message is on the error output";
}

impl Code {
    /// The row of [`CODES`] that tells of this code.
    pub(crate) fn row(self) -> Option<&'static (u32, &'static str, &'static str)> {
        CODES.iter().find(|(number, ..)| *number == self.0)
    }
}

impl From<Outcome> for Code {
    fn from(outcome: Outcome) -> Self {
        outcome.err().unwrap_or(Code::SUCCESS)
    }
}

/// `wrong` unless `condition` holds.
pub(crate) fn ensure(condition: bool, wrong: Code) -> Outcome {
    if condition { Ok(()) } else { Err(wrong) }
}

/// Writes a line to the error output, where a person who wonders about a code will look.
pub(crate) fn log(message: impl std::fmt::Display) {
    eprintln!("stand-in CUDA driver: {message}");
}
