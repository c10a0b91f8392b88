//! The folder of sockets: this user's own, closed to all others.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::EndpointError;

/// Bytes of a socket's path, with the zero at its end, on the strictest system (macOS).
const PATH_LIMIT: usize = 104;

/// The path for a socket of this name; its folder is made.
///
/// # Errors
/// When there is no folder that is ours alone.
pub fn socket_path(name: &str) -> Result<String, EndpointError> {
    let user = rustix::process::geteuid().as_raw();
    let of_user = format!("fermata-{user}");
    let runtime =
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute() && path.is_dir());
    let candidates = [
        runtime.map(|path| path.join("fermata")),
        Some(std::env::temp_dir().join(&of_user)),
        Some(Path::new("/tmp").join(&of_user)),
    ];
    let folder = candidates.into_iter().flatten().find(|folder| folder.join(name).as_os_str().len() < PATH_LIMIT);
    let folder = folder.unwrap_or_else(|| Path::new("/tmp").join(&of_user));
    make_own(&folder, user)?;
    // A path that is not Unicode cannot stand in the file that names it.
    let path = folder.join(name);
    path.to_str().map(str::to_owned).ok_or(EndpointError::NotOurs { path: folder })
}

/// Makes the folder, or checks that the one there belongs to the user and is closed to others.
fn make_own(folder: &Path, user: u32) -> Result<(), EndpointError> {
    let io = |source: io::Error| EndpointError::Io { path: folder.to_owned(), source };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(io(error)),
        Ok(()) | Err(_) => {}
    }
    // A link could lead into a folder of somebody else.
    let found = fs::symlink_metadata(folder).map_err(io)?;
    if !found.is_dir() || found.uid() != user {
        return Err(EndpointError::NotOurs { path: folder.to_owned() });
    }
    if found.mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(io)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_made_and_closed_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("fermata");
        let user = rustix::process::geteuid().as_raw();
        make_own(&folder, user).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        make_own(&folder, user).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn a_folder_of_another_user_or_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let user = rustix::process::geteuid().as_raw();
        assert!(matches!(make_own(dir.path(), user + 1), Err(EndpointError::NotOurs { .. })));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).unwrap();
        assert!(matches!(make_own(&link, user), Err(EndpointError::NotOurs { .. })));
    }

    #[test]
    fn a_socket_path_fits() {
        assert!(socket_path("0123456789abcdef.sock").unwrap().len() < PATH_LIMIT);
    }
}
