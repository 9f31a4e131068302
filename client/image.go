package client

import "time"

// Image is an image that sessions can run.
type Image struct {
	// Digest is the image's id, "sha256:…": it stands for all that is in it.
	Digest string `json:"digest"`
	// Names by which it can be asked for, such as "debian:12"; may be empty.
	Names []string `json:"names"`
	// Size in bytes of all its files.
	Size Size `json:"size"`
	// Files counts them; 0 where that is not known.
	Files int64 `json:"files,omitempty"`
	// Architecture as Go spells it.
	Architecture string `json:"architecture,omitempty"`
	// Created is when the image says that it was built; nil if it does not.
	Created *time.Time `json:"created,omitempty"`
	// Added is when this host got it; nil where that is not known.
	Added *time.Time `json:"added,omitempty"`
}

// ImagePull asks for an image of a registry.
type ImagePull struct {
	// Ref is the image's name, such as "debian:12" or
	// "registry.example.com/team/tools@sha256:…".
	Ref string `json:"ref"`
	// Insecure allows plain HTTP; without it only registries on this host may be
	// asked so.
	Insecure bool `json:"insecure,omitempty"`
}

// ImageProgress is how far a pull has come.
type ImageProgress struct {
	// Stage is one of resolve, receive, download, unpack and commit.
	Stage string `json:"stage"`
	// Layer is counted from 1, of Layers; 0 where there is none yet.
	Layer  int `json:"layer,omitempty"`
	Layers int `json:"layers,omitempty"`
	// Bytes of Total that are done in this stage of this layer; Total is 0 where
	// it is not known.
	Bytes int64 `json:"bytes,omitempty"`
	Total int64 `json:"total,omitempty"`
}
